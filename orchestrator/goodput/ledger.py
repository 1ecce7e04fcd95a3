"""Every GPU-second of a job in exactly one class.

The job's life is cut into periods that touch (`periods.py`), a run into windows from one finished step to the next,
a window by what rank 0 measured in it. Every cut is a whole microsecond and the last part of each is what is left,
so the classes add up to the whole by construction and not by rounding. Terms: useful time over all time is goodput,
the ETTR of "Revisiting Reliability in Large-Scale Machine Learning Research Clusters" (Kokolis et al., arXiv
2410.21680), section 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from orchestrator.goodput.classes import Ledger, Spent
from orchestrator.goodput.periods import Moment, Period, Phase, periods
from orchestrator.lifecycle.reports import EventKind

WHOLE = {
    Phase.QUEUED: Spent.QUEUED,
    Phase.START: Spent.START,
    Phase.REPAIR: Spent.REPAIR,
    Phase.END: Spent.CHECKPOINT_STALL,
}
"""Class of periods that are not cut further. What ends a job is its last checkpoint."""
WAITS = (Spent.EXPOSED_COMMUNICATION, Spent.BUBBLE, Spent.DATA_WAIT, Spent.CHECKPOINT_STALL)
"""What a step waits for, in the order in which a window is cut."""


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """One record of a finished step, in the order in which steps finished."""

    at_us: int
    """When it had finished."""
    step: int
    step_us: int
    """How long it took."""
    waited_us: Mapping[Spent, int] = field(default_factory=dict)
    """Of that, what rank 0 spent on each of `WAITS`."""


@dataclass(frozen=True, slots=True)
class Holding:
    """GPUs from a time on until the next holding."""

    at_us: int
    working: int
    spare: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of a job. Times are UTC microseconds since 1970."""

    submitted_us: int
    until_us: int
    """When the job ended, or now."""
    asked: int
    """GPUs."""
    moments: Sequence[Moment] = ()
    steps: Sequence[FinishedStep] = ()
    holdings: Sequence[Holding] = ()
    """Empty: `asked` GPUs all along, no spares."""


def ledger(history: History) -> Ledger:
    """Raises ValueError when the job ends before it begins, or asks for less than one GPU."""
    if history.until_us < history.submitted_us:
        raise ValueError(f"the job ends at {history.until_us}, before it begins at {history.submitted_us}")
    if history.asked < 1:
        raise ValueError(f"the job asks for {history.asked} GPUs: at least 1")
    found = dict.fromkeys(Spent, 0)
    for spent, start_us, end_us, phase in _spans(history):
        for share_us, working, missing, spare in _held(history, start_us, end_us, phase):
            found[spent] += share_us * working
            found[Spent.DEGRADED] += share_us * missing
            found[Spent.IDLE_SPARE] += share_us * spare
    return Ledger(found)


def _spans(history: History) -> list[tuple[Spent, int, int, Phase]]:
    """The whole life in pieces of one class each, one after the other."""
    lost = _lost(history)
    usual_us = int(median(step.step_us for step in history.steps)) if history.steps else 0
    found: list[tuple[Spent, int, int, Phase]] = []
    number = 0
    for period in periods(history.moments, history.submitted_us, history.until_us):
        if period.phase is not Phase.RUN:
            found.append((WHOLE[period.phase], period.start_us, period.end_us, period.phase))
            continue
        first = number
        while number < len(history.steps) and _belongs(history.steps[number], period, history):
            number += 1
        mine = range(first, number)
        found += [(*piece, Phase.RUN) for piece in _run(period, history.steps, mine, lost, usual_us)]
    return found


def _belongs(step: FinishedStep, period: Period, history: History) -> bool:
    """Steps up to the end of a run are its own; what clocks put later belongs to a later run, or to nothing."""
    return step.at_us <= period.end_us or period.end_us == history.until_us


def _run(
    period: Period, steps: Sequence[FinishedStep], mine: range, lost: set[int], usual_us: int
) -> list[tuple[Spent, int, int]]:
    found: list[tuple[Spent, int, int]] = []
    since = period.start_us
    for i in mine:
        until = min(max(steps[i].at_us, since), period.end_us)
        if i in lost:
            found.append((Spent.LOST_WORK, since, until))
        else:
            found += _window(since, until, steps[i])
        since = until
    rest = period.end_us - since
    if period.broken:  # the step in hand is lost; what it took longer than usual, nobody noticed
        broken = min(rest, usual_us) if usual_us else rest
        found.append((Spent.LOST_WORK, since, since + broken))
        found.append((Spent.DETECTION, since + broken, period.end_us))
    else:
        found.append((Spent.USEFUL_COMPUTE, since, period.end_us))
    return [piece for piece in found if piece[2] > piece[1]]


def _window(since: int, until: int, step: FinishedStep) -> list[tuple[Spent, int, int]]:
    """Waits as measured, at most the whole window, in a fixed order; computing is what is left."""
    found = []
    for spent in WAITS:
        took = min(max(0, step.waited_us.get(spent, 0)), until - since)
        if took:
            found.append((spent, since, since + took))
            since += took
    return [*found, (Spent.USEFUL_COMPUTE, since, until)]


def _lost(history: History) -> set[int]:
    """Places in `steps` of those above a step that training went back to afterwards."""
    lost: set[int] = set()
    back = [
        m
        for m in history.moments
        if m.to_step is not None and m.kind in (EventKind.RESUMED, EventKind.REWOUND)
    ]
    for moment in back:
        lost |= {
            i
            for i, step in enumerate(history.steps)
            if step.at_us <= moment.at_us and moment.to_step is not None and step.step > moment.to_step
        }
    return lost


def _held(history: History, start_us: int, end_us: int, phase: Phase) -> list[tuple[int, int, int, int]]:
    """Of a piece: (microseconds, GPUs at work, GPUs missing, spares). A queued job holds none and waits for all it
    asks."""
    if phase is Phase.QUEUED or not history.holdings:
        return [(end_us - start_us, history.asked, 0, 0)]
    found = []
    ordered = sorted(history.holdings, key=lambda holding: holding.at_us)
    for i, holding in enumerate(ordered):
        begin = start_us if i == 0 else max(start_us, holding.at_us)
        end = min(end_us, ordered[i + 1].at_us) if i + 1 < len(ordered) else end_us
        if end > begin:
            missing = max(0, history.asked - holding.working)
            found.append((end - begin, holding.working, missing, holding.spare))
    return found
