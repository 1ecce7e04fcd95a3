"""Which ranks, links and nodes are slow: live, step by step, and from a whole recording. One code for both.

Steps go in once, in order; memory is bounded by the window, the ranks and a number of past findings. `judge` on a
recording is the detector fed with it, so a live verdict and one in hindsight cannot differ.

How the field does it, and what was taken over:
- what-if analysis (Lin et al., OSDI 2025, arXiv 2505.05713): compare an operation with the same one on other ranks;
  a long last stage and uneven sequences are common causes and no fault of a machine.
- FALCON / GREYHOUND (Wu et al., arXiv 2410.12588, USENIX ATC 2025): change points confirmed by at least 10 % of
  change; compare groups with groups of the same kind.
- MegaScale (Jiang et al., NSDI 2024): per-rank compute as a heat map over the ranks.
- nvidia-resiliency-ext: scores relative to the others and to the rank's own past. Its reference is the fastest
  rank; here the median of the others, so that one rank with little work does not make all others slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from orchestrator.health.attribute import Suspects, stragglers
from orchestrator.health.layout import Floats, Layout
from orchestrator.health.recurrence import Recurrence
from orchestrator.health.signals import Signals, StepSignals
from orchestrator.health.track import ALLOWANCE, Interval, Sample, Track
from orchestrator.health.verdict import Verdict, Watch, Watched
from orchestrator.health.workload import Workload

WINDOW = 128
"""Steps that normal is learned from."""
KEPT = 1_000
"""Past intervals of a signal that are kept; the oldest give way."""
LINK_ALLOWANCE = 0.08
"""Waiting on a link, as a share of compute, that is nobody's fault: waits vary more than computing."""
FEWEST_STEPS = 4


class _Channel:
    """A signal's tracker with what it has found."""

    def __init__(self, subjects: int, window: int, allowance: float) -> None:
        self.track = Track(subjects, window, allowance)
        self.recurrence = Recurrence(subjects)
        self.closed: deque[Interval] = deque(maxlen=KEPT)
        self.spikes: deque[Interval] = deque(maxlen=KEPT)

    def observe(self, sample: Sample) -> Iterator[tuple[Sample, Floats]]:
        yield from map(self._take, self.track.observe(sample))

    def settle(self) -> Iterator[tuple[Sample, Floats]]:
        yield from map(self._take, self.track.settle())

    def _take(self, judged: tuple[Sample, Floats, list[Interval]]) -> tuple[Sample, Floats]:
        sample, beyond, ended = judged
        busy = np.zeros(len(beyond), dtype=np.bool_)
        busy[list(self.track.open)] = True
        periodic, spikes = self.recurrence.observe(sample, beyond, self.track.noise, busy)
        self.closed.extend([*ended, *periodic])
        self.spikes.extend(spikes)
        return sample, beyond

    @property
    def blamed(self) -> list[int]:
        return [*self.track.open, *self.recurrence.open]

    @property
    def intervals(self) -> list[Interval]:
        """Closed and open ones, oldest first."""
        found = [*self.closed, *self.track.open.values(), *self.recurrence.open.values()]
        return sorted(found, key=lambda interval: (interval.from_step, interval.subject))


class StragglerDetector:
    """Feed with `observe`, ask with `verdict` at any time."""

    def __init__(self, layout: Layout, *, window: int = WINDOW) -> None:
        count = len(layout)
        self._layout = layout
        self._signals = Signals(layout)
        self._compute = _Channel(count, window, ALLOWANCE)
        self._busy = _Channel(count, window, ALLOWANCE) if layout.phased else None
        self._links = _Channel(len(layout.pairs), window, LINK_ALLOWANCE) if layout.pairs else None
        self._collective = _Channel(count, window, LINK_ALLOWANCE) if layout.phased else None
        self._workload = Workload(layout)
        self._first_step: int | None = None
        self._last_step = 0
        self._steps = 0

    def observe(self, step: int, seconds: Floats) -> None:
        """One finished step. seconds: (ranks, columns of the layout); the row of a rank without a report is NaN.

        Raises ValueError when `step` is not above the one before: a job that went back to a checkpoint needs a new
        detector, because its ranks may be other ones.
        """
        if self._first_step is not None and step <= self._last_step:
            raise ValueError(f"step {step} after step {self._last_step}: steps must rise")
        if seconds.shape != (len(self._layout), len(self._layout.columns)):
            wanted = (len(self._layout), len(self._layout.columns))
            raise ValueError(f"measurements of shape {seconds.shape} where {wanted} is right")
        self._first_step = step if self._first_step is None else self._first_step
        self._last_step = step
        self._steps += 1
        self._take(self._signals.of(step, seconds))

    def _take(self, signals: StepSignals) -> None:
        for sample, beyond in self._compute.observe(signals.compute):
            self._workload.observe(sample, beyond, self._compute.track.noise, self._compute.blamed)
        for channel, sample_of in (
            (self._busy, signals.busy),
            (self._links, signals.links),
            (self._collective, signals.collective),
        ):
            if channel is not None and sample_of is not None:
                for _ in channel.observe(sample_of):
                    pass

    def verdict(self) -> Verdict:
        """Everything found so far. Before the eighth step it judges by the few there are and learns no more from
        them."""
        self._settle()
        first = self._first_step or 0
        suspects = Suspects(
            compute=self._compute.intervals,
            busy=self._busy.intervals if self._busy else [],
            links=self._links.intervals if self._links else [],
            collective=self._collective.intervals if self._collective else [],
        )
        found, replicas = stragglers(self._layout, suspects, first, self._last_step)
        return Verdict(
            stragglers=tuple(found),
            imbalance=(*self._workload.imbalance(), *replicas),
            watch=(*self._workload.trends(), *self._spikes()),
            steps=self._steps,
            ranks=len(self._layout),
        )

    def _settle(self) -> None:
        for sample, beyond in self._compute.settle():
            self._workload.observe(sample, beyond, self._compute.track.noise, self._compute.blamed)
        for channel in (self._busy, self._links, self._collective):
            if channel is not None:
                for _ in channel.settle():
                    pass

    def _spikes(self) -> list[Watch]:
        channels = [self._compute, *([self._busy] if self._busy else [])]
        told: dict[tuple[int, int], Interval] = {}
        blamed = {
            (interval.subject, step)
            for channel in channels
            for interval in channel.intervals
            for step in (interval.from_step, interval.to_step)
        }
        for channel in channels:
            for spike in channel.spikes:
                told.setdefault((spike.subject, spike.from_step), spike)
        return [
            Watch(
                self._layout.ranks[place],
                Watched.SPIKE,
                step,
                step,
                spike.factor,
                spike.excess,
                f"one step {spike.factor:.1f} times as long as its peers'",
            )
            for (place, step), spike in sorted(told.items(), key=lambda item: item[0][::-1])
            if (place, step) not in blamed
        ]
