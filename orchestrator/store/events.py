"""Events: the history of a job, and the cursor that lists and streams go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from orchestrator.lifecycle.reports import EventKind, GangEvent
from orchestrator.store.errors import JobNotFoundError
from orchestrator.store.tables import Event, Job


def append(
    session: Session,
    job_id: str,
    kind: EventKind,
    message: str,
    *,
    at: datetime,
    attempt: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> int:
    """One event of the control plane. Returns its id."""
    first = _reserve(session, job_id, 1)
    row = _row(job_id, first, at, kind, message, attempt, data or {})
    session.execute(insert(Event), [row])
    return first


def append_gang(session: Session, job_id: str, incarnation: int, drained: Sequence[GangEvent]) -> None:
    """Events of a supervisor, in order. The caller moves the placement's cursor in the same transaction."""
    if not drained:
        return
    first = _reserve(session, job_id, len(drained))
    rows = [
        _row(job_id, first + i, datetime.fromtimestamp(e.at, UTC), e.kind, e.message, e.attempt, e.data)
        | {"incarnation": incarnation, "seq": e.seq}
        for i, e in enumerate(drained)
    ]
    session.execute(insert(Event), rows)


def _row(
    job_id: str,
    event_id: int,
    at: datetime,
    kind: EventKind,
    message: str,
    attempt: int | None,
    data: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "id": event_id,
        "at": at,
        "kind": EventKind(kind).value,
        "attempt": attempt,
        "incarnation": None,
        "seq": None,
        "message": message,
        "data": dict(data),
    }


def _reserve(session: Session, job_id: str, count: int) -> int:
    """First of `count` new ids. The job's row stays locked until the commit, so ids appear in their order."""
    last = session.scalar(
        update(Job)
        .where(Job.id == job_id)
        .values(last_event_id=Job.last_event_id + count)
        .returning(Job.last_event_id)
        .execution_options(synchronize_session=False)
    )
    if last is None:
        raise JobNotFoundError(job_id)
    return last - count + 1


def newest_of_kind(session: Session, job_id: str, kind: EventKind) -> Event | None:
    query = select(Event).where(Event.job_id == job_id, Event.kind == kind.value)
    return session.scalars(query.order_by(Event.id.desc()).limit(1)).one_or_none()


def after(session: Session, job_id: str, *, cursor: int = 0, limit: int = 500) -> Sequence[Event]:
    """Events with an id above `cursor`, oldest first."""
    query = select(Event).where(Event.job_id == job_id, Event.id > cursor).order_by(Event.id).limit(limit)
    return session.scalars(query).all()
