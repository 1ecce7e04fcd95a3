"""Back-off: what failed is tried again later, and later still when it fails again."""

from __future__ import annotations

import threading
from collections.abc import Callable

FIRST_S = 0.5
LONGEST_S = 30.0


class Backoff:
    """Keys that failed, with the time before which they are left alone. Doubles from 0.5 s to 30 s."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._failed: dict[str, tuple[int, float]] = {}

    def over(self, key: str) -> bool:
        with self._lock:
            return self._clock_s() >= self._failed.get(key, (0, float("-inf")))[1]

    def failed(self, key: str) -> None:
        with self._lock:
            times = self._failed.get(key, (0, 0.0))[0] + 1
            pause_s = min(FIRST_S * 2 ** min(times - 1, 10), LONGEST_S)
            self._failed[key] = (times, self._clock_s() + pause_s)

    def succeeded(self, key: str) -> None:
        with self._lock:
            self._failed.pop(key, None)
