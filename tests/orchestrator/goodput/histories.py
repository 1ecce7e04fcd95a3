"""Histories as tests write them: in seconds, with steps of ten seconds."""

from __future__ import annotations

from orchestrator.goodput.ledger import History, Holding
from orchestrator.goodput.periods import Moment
from orchestrator.goodput.stretch import Stretch, one_step, stretches
from orchestrator.lifecycle.reports import EventKind as E

S = 1_000_000
"""A second."""
COST = {"phases_s": {"data": 1.0, "checkpoint": 0.0}, "exposed_s": {"dp": 1.5, "tp": 0.5, "pp": 1.0}}
"""Of a step of ten seconds: 1 s for data, 2 s of communication, 1 s of bubble."""
QUIET: dict[str, dict[str, float]] = {"phases_s": {}, "exposed_s": {}}
"""All was measured, and nothing was waited for."""


def steps(
    *numbers: int,
    begin_s: int,
    attempt: int = 1,
    first_id: int = 1,
    cost: dict[str, dict[str, float]] | None = QUIET,
) -> list[Stretch]:
    """Steps of ten seconds each."""
    return stretches(
        one_step(first_id + i, attempt, number, (begin_s + 10 * (i + 1)) * S, 10.0, cost)
        for i, number in enumerate(numbers)
    )


def told(at_s: int, kind: E, attempt: int | None = 1, **more: object) -> Moment:
    return Moment(at_s * S, kind, attempt, **more)  # type: ignore[arg-type]


def history(
    until_s: int,
    gpus: int,
    moments: list[Moment],
    finished: list[Stretch],
    *,
    held: tuple[tuple[int, int], ...],
    over: bool = True,
    kept: int | None = None,
) -> History:
    holdings = [Holding(start * S, end * S, gpus) for start, end in held]
    return History(0, until_s * S, over, gpus, moments, finished, holdings, kept)


FAULTY = history(
    125,
    2,
    [
        told(0, E.PLACED, None),
        told(10, E.TRAINING_STARTED),
        told(65, E.RANK_DIED),
        told(66, E.ATTEMPT_ENDED, outcome="signal"),
        told(67, E.REPAIR_STARTED, 2, rung="in-place"),
        told(80, E.RESUMED, 2, step=1),
        told(85, E.TRAINING_STARTED, 2),
        told(125, E.ATTEMPT_ENDED, 2, outcome="succeeded"),
    ],
    [*steps(1, 2, 3, begin_s=10), *steps(2, 3, 4, 5, begin_s=85, attempt=2, first_id=4)],
    held=((0, 125),),
)
"""Steps 1 to 3 from 10 s on, a checkpoint of step 1, a death in step 4 that is told 25 s after step 3."""
