"""A job's history for the ledger, from SQL: its events that move it from one period to another, and its finished
steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.goodput.classes import Spent
from orchestrator.goodput.ledger import FinishedStep, History
from orchestrator.goodput.periods import FAULTS, STARTS, Moment
from orchestrator.lifecycle.reports import EventKind
from orchestrator.store.tables import Event, Job, Metric

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BACK_TO = {EventKind.RESUMED: "step", EventKind.REWOUND: "to_step"}
"""Where an event's data holds the step that training went back to."""
TOLD = (
    *sorted(FAULTS | STARTS),
    EventKind.QUEUED,
    EventKind.TRAINING_STARTED,
    EventKind.ATTEMPT_ENDED,
    EventKind.FINISHED,
    *BACK_TO,
)


def history_of(session: Session, job: Job, *, now: datetime) -> History:
    """Up to the job's end, or to `now`. Time is linear in the job's finished steps."""
    submitted = microseconds(job.created_at)
    return History(
        submitted_us=submitted,
        until_us=max(submitted, microseconds(job.finished_at or now)),
        asked=job.world_size,
        moments=_moments(session, job.id),
        steps=_steps(session, job.id),
    )


def microseconds(at: datetime) -> int:
    """Whole microseconds since 1970, without the rounding of a float."""
    return (at - EPOCH) // timedelta(microseconds=1)


def _moments(session: Session, job_id: str) -> list[Moment]:
    query = (
        select(Event.at, Event.kind, Event.data)
        .where(Event.job_id == job_id, Event.kind.in_([kind.value for kind in TOLD]))
        .order_by(Event.id)
    )
    return [_moment(at, EventKind(kind), data) for at, kind, data in session.execute(query)]


def _moment(at: datetime, kind: EventKind, data: Mapping[str, Any]) -> Moment:
    step = data.get(BACK_TO[kind]) if kind in BACK_TO else None
    return Moment(microseconds(at), kind, step if isinstance(step, int) else None)


def _steps(session: Session, job_id: str) -> list[FinishedStep]:
    query = (
        select(Metric.at, Metric.step, Metric.step_time_s, Metric.cost)
        .where(Metric.job_id == job_id)
        .order_by(Metric.id)
        .execution_options(yield_per=10_000)
    )
    return [
        FinishedStep(microseconds(at), step, round((took_s or 0.0) * 1e6), waited(cost or {}))
        for at, step, took_s, cost in session.execute(query)
    ]


def waited(cost: Mapping[str, Any]) -> dict[Spent, int]:
    """Microseconds of waiting in what a step cost (`lifecycle.cost.step_cost`), by class."""
    phases, exposed = cost.get("phases_s", {}), cost.get("exposed_s", {})
    found = {
        Spent.DATA_WAIT: phases.get("data", 0.0),
        Spent.CHECKPOINT_STALL: phases.get("checkpoint", 0.0),
        Spent.BUBBLE: exposed.get("pp", 0.0),
        Spent.EXPOSED_COMMUNICATION: sum(seconds for axis, seconds in exposed.items() if axis != "pp"),
    }
    return {spent: round(seconds * 1e6) for spent, seconds in found.items() if seconds}
