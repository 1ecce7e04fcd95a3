"""Slow steps that stand alone: one spike, or a fault that comes back every so many steps.

A mean over a window cannot tell a constant 5 %, every eighth step 40 % slower and one spike of 30 times apart. Here
steps are kept by their place: what a cumulative sum forgets between two slow steps is remembered until the pattern
is plain.
"""

from __future__ import annotations

import itertools
import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from orchestrator.health.layout import Floats
from orchestrator.health.noise import Noise
from orchestrator.health.track import Interval, Sample

LEAST = 0.15
"""Excess of a step that stands out, at least; and so many deviations of a single step:"""
DEVIATIONS = 4.0
REMEMBERED = 16
"""Slow steps of a subject that are kept."""
IRREGULAR = 6
"""Slow steps within `WITHIN` that need no rhythm."""
WITHIN = 64
CHANCE = 256
"""A rhythm counts when slow steps at random would keep to it once in so many times."""
ALONE = 4
"""The others' most frequent may have at most one of so many slow steps of the subject's; else slowness goes round."""
SPIKE = 1.0
"""Excess of a single step that is told: twice as slow."""


class Recurrence:
    """Memory: `REMEMBERED` steps a subject."""

    def __init__(self, subjects: int) -> None:
        self._slow: list[deque[Interval]] = [deque(maxlen=REMEMBERED) for _ in range(subjects)]
        self._index: list[deque[int]] = [deque(maxlen=REMEMBERED) for _ in range(subjects)]
        self._before: NDArray[np.bool_] = np.zeros(subjects, dtype=np.bool_)
        self._last_step: int | None = None
        self._stride = 0
        self._seen = 0
        self.open: dict[int, Interval] = {}
        self._last_slow: dict[int, int] = {}

    def observe(
        self, sample: Sample, beyond: Floats, noise: Noise, busy: NDArray[np.bool_]
    ) -> tuple[list[Interval], list[Interval]]:
        """Periodic intervals that ended, and spikes. `busy`: subjects whose slowness is already told as lasting."""
        if self._last_step is not None:
            self._stride = math.gcd(self._stride, sample.step - self._last_step)
        self._last_step = sample.step
        with np.errstate(invalid="ignore"):
            slow = (beyond > max(LEAST, DEVIATIONS * noise.one_step)) & ~busy
            spiked = np.flatnonzero(slow & ~self._before & (beyond > SPIKE))
        for place in np.flatnonzero(slow & ~self._before).tolist():
            self._one_more(place, sample)
        self._before = slow
        self._seen += 1
        for place in np.flatnonzero(busy).tolist():
            self._slow[place].clear()
            self._index[place].clear()
            self.open.pop(place, None)
        return self._ended(), [_single(place, sample) for place in spiked.tolist()]

    def _one_more(self, place: int, sample: Sample) -> None:
        now = _single(place, sample)
        self._index[place].append(self._seen)
        self._slow[place].append(now)
        if (interval := self.open.get(place)) is not None:
            _join(interval, now)
            self._last_slow[place] = self._seen
            return
        period = self.rhythm(place)
        if period is None or not self._alone(place):
            return
        first, *rest = self._slow[place]
        for other in rest:
            _join(first, other)
        first.period = period
        first.detected_step = sample.step
        self.open[place] = first
        self._last_slow[place] = self._seen

    def rhythm(self, place: int) -> int | None:
        """Measured steps between slow ones of a subject; None while there is no pattern."""
        index = list(self._index[place])
        gaps = [b - a for a, b in itertools.pairwise(index)]
        if not gaps:
            return None
        steps = [interval.from_step for interval in self._slow[place]]
        by_number = math.gcd(*(b - a for a, b in itertools.pairwise(steps))) // max(1, self._stride)
        for common in (math.gcd(*gaps), by_number):
            if common >= 2 and common ** len(gaps) >= CHANCE:
                return round(float(np.median(gaps)))
        recent = [i for i in index if i > self._seen - WITHIN]
        if len(recent) >= IRREGULAR:
            return round(float(np.median(gaps)))
        return None

    def _alone(self, place: int) -> bool:
        since = self._index[place][0]
        own = len(self._index[place])
        most = max(
            (sum(i >= since for i in other) for p, other in enumerate(self._index) if p != place), default=0
        )
        return most * ALONE <= own

    def _ended(self) -> list[Interval]:
        """A periodic fault has ended when two of its steps in a row were quiet."""
        done = []
        for place, interval in list(self.open.items()):
            if self._seen - self._last_slow[place] > 2 * (interval.period or 1) + 2:
                interval.is_open = False
                done.append(self.open.pop(place))
                self._slow[place].clear()
                self._index[place].clear()
        return done


def _single(place: int, sample: Sample) -> Interval:
    return Interval(
        place,
        sample.step,
        sample.step,
        detected_step=sample.step,
        is_open=True,
        steps=1,
        slow_steps=1,
        excess=float(sample.excess[place]),
        reference=float(sample.reference[place]),
        garbage=float(sample.garbage[place]),
        unexplained=float(sample.unexplained[place]),
        spared=float(sample.spared[place]),
        historic=int(sample.historic[place]),
    )


def _join(interval: Interval, later: Interval) -> None:
    interval.to_step = later.to_step
    interval.steps += later.steps
    interval.slow_steps += later.slow_steps
    interval.excess += later.excess
    interval.reference += later.reference
    interval.garbage += later.garbage
    interval.unexplained += later.unexplained
    interval.spared += later.spared
    interval.historic += later.historic
