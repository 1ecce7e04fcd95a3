"""Every GPU-second of a job in exactly one class.

The job's life is cut into periods that touch (`periods.py`), a run into stretches of finished steps (`stretch.py`),
a stretch by what rank 0 measured in it. All of that is time; how many GPUs it is times comes from the placements,
which are independent of it. Cuts are whole microseconds. Terms: "Revisiting Reliability in Large-Scale Machine Learning
Research Clusters" (Kokolis et al., arXiv 2410.21680), section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from orchestrator.goodput.classes import WAITS, Ledger, Spent
from orchestrator.goodput.periods import Moment, Period, Phase, periods
from orchestrator.goodput.stretch import Stretch, lost_from

WHOLE = {Phase.START: Spent.START, Phase.DETECTION: Spent.DETECTION, Phase.REPAIR: Spent.REPAIR}
"""Class of periods that are not cut further."""


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs of one placement."""

    start_us: int
    end_us: int
    """When they were free again; now, while they are not."""
    working: int
    spare: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of a job. Times are UTC microseconds since 1970."""

    submitted_us: int
    until_us: int
    """When the job ended, or now. It may hold GPUs for longer."""
    over: bool
    asked: int
    """GPUs."""
    moments: Sequence[Moment] = ()
    stretches: Sequence[Stretch] = ()
    holdings: Sequence[Holding] = ()
    """In their order; they do not overlap."""
    kept: int | None = None
    """Newest step whose result lives on; None: that of all, as long as training has not gone back."""


class Span(NamedTuple):
    spent: Spent
    start_us: int
    end_us: int


def ledger(history: History, since_us: int | None = None, until_us: int | None = None) -> Ledger:
    """Of the whole life, or of what of it lies between two times.

    A stretch that lies across such a time is taken to be even. Raises ValueError when the job ends before it begins,
    or asks for less than one GPU.
    """
    if history.until_us < history.submitted_us:
        raise ValueError(f"the job ends at {history.until_us}, before it begins at {history.submitted_us}")
    if history.asked < 1:
        raise ValueError(f"the job asks for {history.asked} GPUs: at least 1")
    life = _Life(history, [at for at in (since_us, until_us) if at is not None])
    found, blind = dict.fromkeys(Spent, 0), dict.fromkeys(WAITS, 0)
    for span in _within(life.spans, since_us, until_us):
        for spent, gpu_us in _held(history, span):
            found[spent] += gpu_us
    for wait, start_us, end_us in _within(life.blind, since_us, until_us):
        blind[wait] += _working(history, start_us, end_us)
    steps = _within(life.steps, since_us, until_us)
    steps_us = sum(_working(history, start_us, end_us) for _, start_us, end_us in steps)
    return Ledger(found, steps_us, blind)


def _within(spans: Iterable[Span], since_us: int | None, until_us: int | None) -> Iterator[Span]:
    for spent, start_us, end_us in spans:
        start_us = start_us if since_us is None else max(start_us, since_us)
        end_us = end_us if until_us is None else min(end_us, until_us)
        if end_us > start_us:
            yield Span(spent, start_us, end_us)


class _Life:
    """A whole life in spans of one class each."""

    def __init__(self, history: History, cuts: Sequence[int]) -> None:
        """`cuts`: times, in their order, at which parts of the life are told apart."""
        self._cuts = cuts
        self.spans: list[Span] = []
        """One after the other."""
        self.steps: list[Span] = []
        """Of those, finished steps that count."""
        self.blind: list[Span] = []
        """As much of `steps` as had a wait that nobody measured."""
        bounds = lost_from(history.stretches, history.kept)
        by_attempt: dict[int | None, list[tuple[Stretch, bool]]] = {}
        self._unheard = {
            before.attempt: max(0, after.first_step - before.last_step - 1)
            for before, after in pairwise(history.stretches)
            if after.attempt != before.attempt
        }
        """By attempt: steps that were saved and never told, since the supervisor was gone."""
        for stretch, bound in zip(history.stretches, bounds, strict=True):
            by_attempt.setdefault(stretch.attempt, []).append((stretch, stretch.first_step >= bound))
        for period in periods(history.moments, history.submitted_us, history.until_us):
            if period.phase is Phase.RUN:
                self._run(period, by_attempt.pop(period.attempt, []), history.over)
            else:
                self._add(WHOLE[period.phase], period.start_us, period.end_us)
        freed = max((holding.end_us for holding in history.holdings), default=history.until_us)
        self._add(Spent.START, history.until_us, freed)  # the taking down after the end

    def _add(self, spent: Spent, start_us: int, end_us: int) -> int:
        """The later of both times."""
        if end_us > start_us:
            self.spans.append(Span(spent, start_us, end_us))
        return max(start_us, end_us)

    def _run(self, period: Period, stretches: Sequence[tuple[Stretch, bool]], over: bool) -> None:
        since = period.start_us
        for i, (stretch, is_lost) in enumerate(stretches):
            if i == 0:  # what came before the first step belongs to what led to it
                begin = min(stretch.first_end_us - stretch.first_us, period.end_us)
                since = self._add(
                    Spent.REPAIR if period.before is Phase.REPAIR else Spent.START, since, begin
                )
            until = min(max(stretch.end_us, since), period.end_us)
            if is_lost:
                self._add(Spent.LOST_WORK, since, until)
            else:
                self._kept(since, until, stretch)
            since = until
        if period.broken:  # the step in hand is lost; what it took longer than usual, nobody noticed
            usual = stretches[-1][0].usual_us if stretches else period.end_us - since
            since = self._saved_unheard(since, period, usual)
            since = self._add(Spent.LOST_WORK, since, min(since + usual, period.end_us))
            self._add(Spent.DETECTION, since, period.end_us)
        elif period.open and not over:
            self._add(Spent.USEFUL_COMPUTE, since, period.end_us)  # the step in hand
        else:
            for spent, at_us in period.marks:
                since = self._add(spent, since, at_us)
            self._add(Spent.START, since, period.end_us)

    def _saved_unheard(self, since: int, period: Period, usual: int) -> int:
        """Training went on from beyond the last step that was told: those between count, and were not measured."""
        until = min(since + self._unheard.get(period.attempt or 0, 0) * usual, period.end_us)
        self.steps.append(Span(Spent.USEFUL_COMPUTE, since, until))
        self.blind += [Span(wait, since, until) for wait in WAITS]
        return self._add(Spent.USEFUL_COMPUTE, since, until)

    def _kept(self, since: int, until: int, stretch: Stretch) -> None:
        edges = [since, *(cut for cut in self._cuts if since < cut < until), until]
        for start, end in pairwise(edges):
            if end > start:
                self._even(start, end, (end - start) / (until - since), stretch)

    def _even(self, since: int, until: int, share: float, stretch: Stretch) -> None:
        """A share of a stretch: waits as measured, at most all of it, in a fixed order; computing is what is left."""
        self.steps.append(Span(Spent.USEFUL_COMPUTE, since, until))
        for wait in WAITS:
            unknown = round((until - since) * (1.0 - stretch.known(wait)))
            self.blind.append(Span(wait, since, since + unknown))
        for wait in WAITS:
            took = round(stretch.waited_us(wait) * share)
            since = self._add(wait, since, min(since + took, until))
        self._add(Spent.USEFUL_COMPUTE, since, until)


def _held(history: History, span: Span) -> Iterator[tuple[Spent, int]]:
    """GPU time of a span, by class: what the span is spent on for GPUs that are held, being queued where none is."""
    since = span.start_us
    for holding in history.holdings:
        start, end = max(since, holding.start_us), min(span.end_us, holding.end_us)
        if end <= start:
            continue
        yield from _queued(history, since, start)
        yield span.spent, (end - start) * holding.working
        yield Spent.IDLE_SPARE, (end - start) * holding.spare
        missing_us = max(0, min(end, history.until_us) - start)
        yield Spent.DEGRADED, missing_us * max(0, history.asked - holding.working)
        since = end
    yield from _queued(history, since, span.end_us)


def _queued(history: History, start_us: int, end_us: int) -> Iterator[tuple[Spent, int]]:
    """A job that holds none waits for all it asks, until it is over."""
    waited_us = min(end_us, history.until_us) - start_us
    if waited_us > 0:
        yield Spent.QUEUED, waited_us * history.asked


def _working(history: History, start_us: int, end_us: int) -> int:
    """Time of GPUs at work."""
    return sum(
        max(0, min(end_us, holding.end_us) - max(start_us, holding.start_us)) * holding.working
        for holding in history.holdings
    )
