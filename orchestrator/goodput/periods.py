"""A job's life as periods that touch: queued, starting, running, repairing, ending."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.lifecycle.reports import EventKind


class Phase(StrEnum):
    QUEUED = "queued"
    START = "start"
    RUN = "run"
    REPAIR = "repair"
    END = "end"
    """From the end of the last attempt until the job was over: its last checkpoint, and taking it down."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An event of the job's history, in the history's order."""

    at_us: int
    kind: EventKind
    to_step: int | None = None
    """Step that training went back to (`resumed`, `rewound`)."""


@dataclass(frozen=True, slots=True)
class Period:
    phase: Phase
    start_us: int
    end_us: int
    broken: bool = False
    """A run that a fault ended."""


FAULTS = frozenset(
    {
        EventKind.RANK_DIED,
        EventKind.NODE_LOST,
        EventKind.HUNG,
        EventKind.SUPERVISOR_LOST,
        EventKind.REPAIR_STARTED,
        EventKind.CERTIFICATE_REFUSED,
    }
)
STARTS = frozenset({EventKind.PLACED, EventKind.SUPERVISOR_STARTED, EventKind.ATTEMPT_STARTED})


def periods(moments: Sequence[Moment], start_us: int, end_us: int) -> list[Period]:
    """From `start_us` to `end_us` without gap or overlap, whatever the moments say.

    The order of the history counts, not its clocks: nodes may differ by minutes. A moment before the one above it
    is taken to have happened together with that one.
    """
    found: list[Period] = []
    phase, since, trained = Phase.QUEUED, start_us, False
    for moment in moments:
        now = min(max(moment.at_us, since), end_us)
        following = _next(phase, moment.kind, trained)
        if following is phase and not (phase is Phase.RUN and moment.kind is EventKind.TRAINING_STARTED):
            continue
        found.append(Period(phase, since, now, broken=phase is Phase.RUN and moment.kind in FAULTS))
        phase, since = following, now
        trained = trained or phase is Phase.RUN
    found.append(Period(phase, since, max(since, end_us)))
    return [period for period in found if period.end_us > period.start_us]


def _next(phase: Phase, kind: EventKind, trained: bool) -> Phase:
    if kind is EventKind.QUEUED:
        return Phase.QUEUED
    if kind is EventKind.TRAINING_STARTED:
        return Phase.RUN
    if kind in FAULTS:
        return Phase.REPAIR
    if kind in STARTS and phase in (Phase.QUEUED, Phase.END):
        return Phase.REPAIR if trained else Phase.START
    if kind in (EventKind.ATTEMPT_ENDED, EventKind.FINISHED) and phase is Phase.RUN:
        return Phase.END
    return phase
