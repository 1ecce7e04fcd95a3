"""A job's life as periods that touch: starting, running, a fault being found, repairing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.goodput.classes import Spent
from orchestrator.lifecycle.reports import EventKind, Outcome


class Phase(StrEnum):
    START = "start"
    """Nothing went wrong and nothing trains: it comes up or goes down."""
    RUN = "run"
    DETECTION = "detection"
    """A fault is known, its cause is being settled."""
    REPAIR = "repair"


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of the job's history, in the history's order."""

    at_us: int
    kind: EventKind
    attempt: int | None = None
    step: int | None = None
    """Newest finished step when it happened (faults), or step that training goes on from (`resumed`)."""
    outcome: str | None = None
    """How an attempt or a gang ended."""
    rung: str | None = None
    """Of a repair."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Period:
    phase: Phase
    start_us: int
    end_us: int
    attempt: int | None = None
    """Of a run."""
    broken: bool = False
    """A run that a fault ended."""
    open: bool = False
    """The last one: nothing has ended it yet."""
    before: Phase = Phase.START
    """Phase of the period before it."""
    marks: tuple[tuple[Spent, int], ...] = ()
    """Times in a run until which, once its steps are done, the ranks did something else."""


FAULTS = frozenset({EventKind.RANK_DIED, EventKind.NODE_LOST, EventKind.HUNG})
"""Told by the supervisor when they are first known; the end of the attempt follows once the cause is settled."""
GOES_ON = frozenset({EventKind.SUPERVISOR_LOST, EventKind.REPAIR_STARTED})
ENDS = frozenset({EventKind.ATTEMPT_ENDED, EventKind.FINISHED})
MARKS = {
    EventKind.EVALUATED: Spent.USEFUL_COMPUTE,
    EventKind.CHECKPOINT_COMMITTED: Spent.CHECKPOINT_STALL,
}
GIVEN_UP = frozenset(
    {Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED, Outcome.START_FAILED, Outcome.VACATED}
)
"""Ends of a gang after which nothing is repaired."""


def periods(moments: Sequence[Moment], start_us: int, end_us: int) -> list[Period]:
    """From `start_us` to `end_us` without gap or overlap, whatever the moments say.

    The order of the history counts, not its clocks: nodes may differ by minutes. A moment before the one above it
    is taken to have happened together with that one.
    """
    found: list[Period] = []
    phase, before, since = Phase.START, Phase.START, start_us
    attempt: int | None = None
    marks: list[tuple[Spent, int]] = []
    repairs = False
    for moment in moments:
        now = min(max(moment.at_us, since), end_us)
        repairs = repairs or moment.kind in GOES_ON
        if phase is Phase.RUN and moment.kind in MARKS:
            marks.append((MARKS[moment.kind], now))
        following = _next(phase, moment)
        if following is phase and moment.kind is not EventKind.TRAINING_STARTED:
            continue
        if phase is Phase.REPAIR and following is Phase.START and not repairs:
            phase = Phase.START  # it was being taken down all along
        broken = phase is Phase.RUN and moment.kind in FAULTS | GOES_ON
        found.append(Period(phase, since, now, attempt, broken, before=before, marks=tuple(marks)))
        phase, before, since, marks = following, phase, now, []
        attempt = moment.attempt if phase is Phase.RUN else None
        repairs = repairs and phase is not Phase.RUN
    found.append(Period(phase, since, max(since, end_us), attempt, open=True, before=before))
    return [period for period in found if period.end_us > period.start_us]


def _next(phase: Phase, moment: Moment) -> Phase:
    kind = moment.kind
    if kind is EventKind.TRAINING_STARTED:
        return Phase.RUN
    if kind in FAULTS:
        return Phase.DETECTION
    if kind in GOES_ON:
        return Phase.REPAIR
    if kind is EventKind.FINISHED and moment.outcome in GIVEN_UP:
        return Phase.START
    if kind in ENDS and phase is Phase.DETECTION:
        return Phase.REPAIR
    if kind in ENDS and phase is Phase.RUN:
        return Phase.START
    return phase
