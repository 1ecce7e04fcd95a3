"""Last parts of rank logs, kept when an attempt has ended. Logs of living ranks come from the controller."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from orchestrator.lifecycle.reports import LogTail
from orchestrator.store.tables import RankLog


def keep(session: Session, job_id: str, tails: Iterable[LogTail]) -> None:
    """Stores the tails; what is known of the same (attempt, rank) is replaced."""
    for tail in tails:
        session.merge(
            RankLog(
                job_id=job_id,
                attempt=tail.attempt,
                rank=tail.rank,
                text=tail.text,
                size_bytes=tail.size_bytes,
            )
        )
    session.flush()


def get(session: Session, job_id: str, *, rank: int, attempt: int | None = None) -> RankLog | None:
    """The log of a rank in an attempt, or in the newest attempt that has one; None when none was kept."""
    query = select(RankLog).where(RankLog.job_id == job_id, RankLog.rank == rank)
    if attempt is not None:
        query = query.where(RankLog.attempt == attempt)
    return session.scalars(query.order_by(RankLog.attempt.desc()).limit(1)).one_or_none()


def attempts_with_logs(session: Session, job_id: str) -> Sequence[tuple[int, int]]:
    """(attempt, ranks kept), oldest first."""
    query = select(RankLog.attempt, func.count()).where(RankLog.job_id == job_id)
    rows = session.execute(query.group_by(RankLog.attempt).order_by(RankLog.attempt))
    return [(attempt, ranks) for attempt, ranks in rows]
