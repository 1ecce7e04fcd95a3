"""What became of each fault of a job: told, settled, repaired, trained on. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.goodput.periods import ENDS, FAULTS, GIVEN_UP, GOES_ON, Moment
from orchestrator.goodput.stretch import Stretch
from orchestrator.lifecycle.reports import EventKind

RE_PLACED = "re-placed"
"""The rung of a repair for which no supervisor had one: the job was placed again."""


@dataclass(slots=True)
class Repair:
    """A fault and its repair. Times are UTC microseconds since 1970; None: it has not come to that, or never did."""

    fault: EventKind
    message: str
    attempt: int | None
    """That the fault broke."""
    step: int | None
    """Newest finished step when it struck."""
    told_us: int
    """When the fault was first known."""
    rung: str | None = None
    last_step_us: int | None = None
    """When the newest step before it had finished."""
    settled_us: int | None = None
    """When its cause was known and every rank of the attempt was gone."""
    trained_us: int | None = None
    """When all ranks were ready again."""
    stepped_us: int | None = None
    """When the first step had finished after that."""
    given_up: bool = False
    """The job ended instead."""

    def seconds(self) -> dict[str, float]:
        """Length of each part that is over: `unnoticed` (from the last step), `settling`, `repair`, `first-step`."""
        times = (self.last_step_us, self.told_us, self.settled_us, self.trained_us, self.stepped_us)
        parts = zip(("unnoticed", "settling", "repair", "first-step"), times, times[1:], strict=False)
        return {
            name: max(0, end - start) / 1e6
            for name, start, end in parts
            if start is not None and end is not None
        }


def repairs(moments: Sequence[Moment], stretches: Sequence[Stretch], *, over: bool) -> list[Repair]:
    """Oldest first. `over`: the job has ended. A fault that strikes during a repair begins one of its own."""
    first: dict[int, Stretch] = {}
    last: dict[int, Stretch] = {}
    for stretch in stretches:
        first.setdefault(stretch.attempt, stretch)
        last[stretch.attempt] = stretch
    found: list[Repair] = []
    under_way: Repair | None = None
    trains: int | None = None
    """The attempt that trains."""
    for moment in moments:
        if moment.kind in FAULTS or (moment.kind is EventKind.SUPERVISOR_LOST and under_way is None):
            under_way = _begun(moment, trains, last)
            found.append(under_way)
            trains = None
        elif moment.kind is EventKind.TRAINING_STARTED:
            trains = moment.attempt
        if under_way is not None and _goes_on(under_way, moment, first):
            under_way = None
    if under_way is not None and over:
        under_way.given_up = True
    return found


def _begun(moment: Moment, trains: int | None, last: dict[int, Stretch]) -> Repair:
    attempt = moment.attempt if moment.attempt is not None else trains
    broke = last.get(attempt) if attempt is not None and attempt == trains else None
    return Repair(
        fault=moment.kind,
        message=moment.message,
        attempt=attempt,
        step=moment.step if moment.step is not None else broke.last_step if broke else None,
        told_us=moment.at_us,
        last_step_us=broke.end_us if broke else None,
        settled_us=moment.at_us if moment.kind is EventKind.SUPERVISOR_LOST else None,
    )


def _goes_on(repair: Repair, moment: Moment, first: dict[int, Stretch]) -> bool:
    """Takes in what happened; True when the repair is over."""
    if moment.kind in ENDS | GOES_ON and repair.settled_us is None:
        repair.settled_us = max(moment.at_us, repair.told_us)
    if moment.rung is not None:
        repair.rung = moment.rung
    elif moment.kind is EventKind.PLACED:
        repair.rung = repair.rung or RE_PLACED
    if moment.kind is EventKind.TRAINING_STARTED:
        repair.trained_us = moment.at_us
        stretch = first.get(moment.attempt) if moment.attempt is not None else None
        repair.stepped_us = stretch.first_end_us if stretch else None
        return True
    if moment.kind is EventKind.FINISHED and moment.outcome in GIVEN_UP:
        repair.given_up = True
        return True
    return False
