"""Metrics: one row a finished step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from orchestrator.lifecycle.reports import StepRecord
from orchestrator.store import stretches
from orchestrator.store.errors import JobNotFoundError
from orchestrator.store.tables import Job, Metric


def append(session: Session, job_id: str, incarnation: int, drained: Sequence[StepRecord]) -> None:
    """Step records of a supervisor, in order. The caller moves the cursor in the same transaction."""
    if not drained:
        return
    last = session.scalar(
        update(Job)
        .where(Job.id == job_id)
        .values(last_metric_id=Job.last_metric_id + len(drained))
        .returning(Job.last_metric_id)
        .execution_options(synchronize_session=False)
    )
    if last is None:
        raise JobNotFoundError(job_id)
    rows = [
        {
            "job_id": job_id,
            "id": last - len(drained) + 1 + i,
            "at": datetime.fromtimestamp(record.at, UTC),
            "incarnation": incarnation,
            "seq": record.seq,
            "attempt": record.attempt,
            "step": record.step,
            "loss": finite(record.loss),
            "grad_norm": finite(record.grad_norm),
            "learning_rate": finite(record.learning_rate),
            "tokens": record.tokens,
            "step_time_s": finite(record.step_time_s),
            "tokens_per_s": finite(record.tokens_per_s),
            "cost": dict(record.cost) or None,
        }
        for i, record in enumerate(drained)
    ]
    session.execute(insert(Metric), rows)
    stretches.add(session, job_id, rows)


def finite(value: float) -> float | None:
    """`value`, or None for NaN and infinities: SQLite makes NaN null by itself, PostgreSQL would keep it."""
    return value if math.isfinite(value) else None


def after(session: Session, job_id: str, *, cursor: int = 0, limit: int = 1000) -> Sequence[Metric]:
    """Metrics with an id above `cursor`, oldest first."""
    query = select(Metric).where(Metric.job_id == job_id, Metric.id > cursor).order_by(Metric.id).limit(limit)
    return session.scalars(query).all()
