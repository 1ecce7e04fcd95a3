"""How long Python's garbage collector held up a step."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class GarbageClock:
    def __init__(self) -> None:
        self._began = 0.0
        self._spent_s = 0.0

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Counts collections of this process while it is open."""
        told = self._told  # one object: it has to be found again
        gc.callbacks.append(told)
        try:
            yield
        finally:
            gc.callbacks.remove(told)

    def take_s(self) -> float:
        """Seconds since this was asked last."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def _told(self, phase: str, _: Mapping[str, Any]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._spent_s += time.perf_counter() - self._began
