"""From excesses, step by step, to the intervals in which a subject (a rank or a link) was slow.

A one-sided cumulative sum (Page, "Continuous inspection schemes", Biometrika 41, 1954) over the excess beyond an
allowance, in units of the job's own noise: a small fault needs many steps of proof, a large one few, a single step
is never enough. GREYHOUND (Wu et al., USENIX ATC 2025) asks the same of its change points: a shift of the mean by
10 %, or it is jitter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.health.layout import Floats
from orchestrator.health.noise import Noise

ALLOWANCE = 0.05
"""Excess that is nobody's fault. A lasting 10 % is reported, 6 % is not."""
PROOF = 11.0
"""Sum at which a subject is called slow."""
RELIEF = 3.0
"""Sum of quiet steps at which it is called recovered."""
RECOVERED_BELOW = 0.12
"""A subject recovers when it falls under half of its own fault, or under this for a large one."""


@dataclass(slots=True)
class Interval:
    """Steps during which a subject was slow. Sums are over its slow steps."""

    subject: int
    from_step: int
    to_step: int
    detected_step: int = 0
    is_open: bool = True
    from_start: bool = False
    """It was slow when the record began."""
    steps: int = 0
    """Steps from the first slow one to the last, quiet ones included."""
    quiet_steps: int = 0
    """Since the last slow one."""
    slow_steps: int = 0
    beyond: float = 0.0
    """Excess beyond what is normal as a share, summed over all its steps."""
    largest: float = 0.0
    """Of a single step."""
    pending: float = 0.0
    """The same since the last slow step."""
    excess: float = 0.0
    reference: float = 0.0
    """Sum of what peers took, in the unit of the measurement."""
    garbage: float = 0.0
    """Excess of garbage collection."""
    unexplained: float = 0.0
    """Time outside computing and waiting."""
    spared: float = 0.0
    """Waiting that its peers did and it did not."""
    historic: int = 0
    """Slow steps that were told by history and not by peers."""
    period: int | None = None
    """Steps between two slow ones, for a periodic fault."""

    @property
    def factor(self) -> float:
        return 1.0 + self.excess / self.reference if self.reference > 0 else 1.0

    @property
    def lasting(self) -> float:
        """Mean excess of its steps without the largest: one spike makes no slow rank. Of a periodic fault that of its
        slow steps."""
        if self.period is not None:
            return self.factor - 1
        return (self.beyond - self.largest) / (self.steps - 1) if self.steps > 1 else 0.0

    @property
    def density(self) -> float:
        return self.slow_steps / self.steps if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One step of one signal, an entry a subject; NaN where a subject was not measured."""

    step: int
    relative: Floats
    """Excess as a share of what peers take."""
    excess: Floats
    reference: Floats
    garbage: Floats
    unexplained: Floats
    spared: Floats
    historic: NDArray[np.bool_]


class Track:
    """One signal of all subjects. Memory: `window` steps of noise, one interval a subject in the making."""

    def __init__(self, subjects: int, window: int, allowance: float = ALLOWANCE) -> None:
        self.noise = Noise(subjects, window)
        self.allowance = allowance
        self._early: list[Sample] = []
        self._sum: Floats = np.zeros(subjects)
        self._relief: Floats = np.zeros(subjects)
        self._suspect: dict[int, Interval] = {}
        self.open: dict[int, Interval] = {}
        self._seen = 0
        self._now = 0

    def observe(self, sample: Sample) -> Iterator[tuple[Sample, Floats, list[Interval]]]:
        """Yields each step with its excess beyond what is normal, and the intervals that closed; the first steps come
        all at once, when there are enough to say what is normal."""
        self._now = sample.step
        if self.noise.ready:
            yield self._judge(sample, learn=True)
            return
        self._early.append(sample)
        self.noise.add(sample.relative)
        if self.noise.ready:
            yield from self.settle()

    def settle(self) -> Iterator[tuple[Sample, Floats, list[Interval]]]:
        """Judges the first steps with what is known now."""
        early, self._early = self._early, []
        if early and not self.noise.ready:
            self.noise.renew()
        for sample in early:
            yield self._judge(sample, learn=False)

    def _judge(self, sample: Sample, *, learn: bool) -> tuple[Sample, Floats, list[Interval]]:
        beyond = sample.relative - self.noise.offset
        known = ~np.isnan(beyond)
        lasting = self.noise.lasting
        with np.errstate(invalid="ignore"):
            weight = np.clip(
                8 * beyond, 2.0, 4.0
            )  # twice as slow needs three steps of proof, a quarter slower six
            evidence = np.clip((beyond - self.allowance) / lasting, -2.0, weight)
        evidence[~known] = 0.0
        self._sum = np.maximum(0.0, self._sum + evidence)
        closed = [
            done for place in list(self.open) if (done := self._go_on(place, sample, float(beyond[place])))
        ]
        for place in sorted({*np.flatnonzero(self._sum > 0).tolist(), *self._suspect} - self.open.keys()):
            self._suspected(place, sample, float(beyond[place]))
        if learn:
            quiet = sample.relative.copy()
            quiet[list(self.open)] = np.nan
            self.noise.add(quiet)
        self._seen += 1
        return sample, beyond, closed

    def _suspected(self, place: int, sample: Sample, beyond: float) -> None:
        if self._sum[place] <= 0:
            self._suspect.pop(place, None)
            return
        interval = self._suspect.get(place)
        if interval is None:
            interval = Interval(place, sample.step, sample.step, from_start=self._seen < 2)
            self._suspect[place] = interval
        _count(interval, sample, beyond, self.allowance)
        if self._sum[place] >= PROOF:
            interval.detected_step = self._now
            self.open[place] = self._suspect.pop(place)
            self._relief[place] = 0.0

    def _go_on(self, place: int, sample: Sample, beyond: float) -> Interval | None:
        """Counts one more step of an open interval; the interval, when it has ended."""
        interval = self.open[place]
        if not np.isnan(beyond):
            limit = min((interval.factor - 1) / 2, RECOVERED_BELOW)
            _count(interval, sample, beyond, limit)
            relief = min((limit - beyond) / self.noise.lasting, 1.0)
            self._relief[place] = max(0.0, self._relief[place] + relief)
        if self._relief[place] < RELIEF:
            return None
        self._sum[place] = 0.0
        del self.open[place]
        interval.is_open = False
        return interval


def _count(interval: Interval, sample: Sample, beyond: float, limit: float) -> None:
    if np.isnan(beyond):
        return
    interval.quiet_steps += 1
    interval.pending += beyond
    if beyond <= limit:
        return
    place = interval.subject
    interval.steps += interval.quiet_steps
    interval.quiet_steps = 0
    interval.beyond += interval.pending
    interval.largest = max(interval.largest, beyond)
    interval.pending = 0.0
    interval.to_step = sample.step
    interval.slow_steps += 1
    interval.excess += float(sample.excess[place])
    interval.reference += float(sample.reference[place])
    interval.garbage += float(sample.garbage[place])
    interval.unexplained += float(sample.unexplained[place])
    interval.spared += float(sample.spared[place])
    interval.historic += int(sample.historic[place])
