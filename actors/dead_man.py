"""A dead man's switch: something that must be renewed, and what happens when it is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class DeadMan:
    """Calls `expired` from a thread of its own once `lease_s` passed without `renew`; it works even when the process's
    event loop is stuck."""

    def __init__(self, lease_s: float, expired: Callable[[], None]) -> None:
        self._lease_s = lease_s
        self._expired = expired
        self._renewed = time.monotonic()
        self._released = threading.Event()
        threading.Thread(target=self._watch, name="lease", daemon=True).start()

    def renew(self) -> None:
        self._renewed = time.monotonic()

    def release(self) -> None:
        """Never fires from here on."""
        self._released.set()

    def _watch(self) -> None:
        while (left := self._renewed + self._lease_s - time.monotonic()) > 0:
            if self._released.wait(left):
                return
        self._expired()
