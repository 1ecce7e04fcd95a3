"""Checkpoints of a job, as its events told of them. The truth is on storage; this is shown to people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from orchestrator.store.tables import Checkpoint


class CheckpointState(StrEnum):
    COMMITTED = "committed"
    DAMAGED = "damaged"
    PRUNED = "pruned"


def commit(
    session: Session, job_id: str, *, step: int, attempt: int, path: str, size_bytes: int, at: datetime
) -> None:
    """A checkpoint that is complete on storage."""
    row = session.get(Checkpoint, (job_id, step, attempt))
    if row is None:
        row = Checkpoint(job_id=job_id, step=step, attempt=attempt)
        session.add(row)
    row.state, row.path, row.bytes, row.created_at = CheckpointState.COMMITTED.value, path, size_bytes, at
    session.flush()


def prune(session: Session, job_id: str, steps: Iterable[int]) -> None:
    """Checkpoints deleted because `keep` newer ones exist."""
    _mark(session, job_id, list(steps), CheckpointState.PRUNED, "")


def damage(session: Session, job_id: str, steps: Iterable[int], message: str) -> None:
    """Checkpoints that did not verify and were passed over."""
    _mark(session, job_id, list(steps), CheckpointState.DAMAGED, message)


def _mark(session: Session, job_id: str, steps: Sequence[int], state: CheckpointState, message: str) -> None:
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.job_id == job_id, Checkpoint.step.in_(steps))
        .where(Checkpoint.state == CheckpointState.COMMITTED.value)
        .values(state=state.value, message=message)
    )


def of_job(session: Session, job_id: str) -> Sequence[Checkpoint]:
    """Newest step first."""
    query = select(Checkpoint).where(Checkpoint.job_id == job_id)
    return session.scalars(query.order_by(Checkpoint.step.desc(), Checkpoint.attempt.desc())).all()
