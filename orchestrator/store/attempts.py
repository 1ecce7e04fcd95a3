"""Attempts: the lives of a job's gang."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from orchestrator.store.tables import Attempt


def start(
    session: Session, job_id: str, number: int, *, incarnation: int, at: datetime, start_step: int = 0
) -> None:
    """A new attempt; one that is known already is left as it is."""
    if session.get(Attempt, (job_id, number)) is None:
        row = Attempt(
            job_id=job_id, number=number, incarnation=incarnation, started_at=at, start_step=start_step
        )
        session.add(row)
        session.flush()


def resumed(session: Session, job_id: str, number: int, *, step: int) -> None:
    """The checkpoint an attempt began from."""
    if (row := session.get(Attempt, (job_id, number))) is not None:
        row.start_step = step
        session.flush()


def end(
    session: Session,
    job_id: str,
    number: int,
    *,
    at: datetime,
    outcome: str,
    end_step: int | None,
    message: str,
) -> None:
    """The end of an attempt; one that has ended already is left as it is."""
    row = session.get(Attempt, (job_id, number))
    if row is not None and row.ended_at is None:
        row.ended_at, row.outcome, row.end_step, row.message = at, outcome, end_step, message
        session.flush()


def end_open(session: Session, job_id: str, *, at: datetime, outcome: str, message: str) -> None:
    """Ends whatever attempt of the job is still open: its supervisor can tell no more."""
    for row in session.scalars(select(Attempt).where(Attempt.job_id == job_id, Attempt.ended_at.is_(None))):
        row.ended_at, row.outcome, row.message = at, outcome, message
    session.flush()


def is_known(session: Session, job_id: str, number: int) -> bool:
    return session.get(Attempt, (job_id, number)) is not None


def newest_number(session: Session, job_id: str) -> int:
    """0 before the first attempt."""
    return session.scalar(select(func.max(Attempt.number)).where(Attempt.job_id == job_id)) or 0


def of_job(session: Session, job_id: str) -> Sequence[Attempt]:
    """Oldest first."""
    return session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)).all()
