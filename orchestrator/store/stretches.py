"""Stretches of finished steps: what ledgers read instead of a row a step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from orchestrator.goodput.stretch import Stretch, one_step, stretches
from orchestrator.lifecycle.said import LARGEST_STEP, whole
from orchestrator.store.tables import Metric, StepStretch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIELDS = tuple(field.name for field in fields(Stretch))


def microseconds(at: datetime) -> int:
    """Whole microseconds since 1970, without the rounding of a float."""
    return (at - EPOCH) // timedelta(microseconds=1)


def add(session: Session, job_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Metrics that were inserted, in their order; the caller has locked the job's row."""
    before = _newest(session, job_id)
    found = stretches(map(_step, rows), before)
    if before is not None:
        if found[0] == before:
            found = found[1:]
        else:
            where = (StepStretch.job_id == job_id, StepStretch.first_id == before.first_id)
            session.execute(delete(StepStretch).where(*where))
    session.execute(insert(StepStretch), [{"job_id": job_id, **asdict(stretch)} for stretch in found])


def _step(row: Mapping[str, Any]) -> Stretch:
    step = whole(row["step"], LARGEST_STEP)
    return one_step(row["id"], row["attempt"], step, microseconds(row["at"]), row["step_time_s"], row["cost"])


def _newest(session: Session, job_id: str) -> Stretch | None:
    query = select(StepStretch).where(StepStretch.job_id == job_id).order_by(StepStretch.first_id.desc())
    row = session.scalars(query.limit(1)).one_or_none()
    return None if row is None else _stretch(row)


def _stretch(row: Any) -> Stretch:
    return Stretch(**{name: getattr(row, name) for name in FIELDS})


def of_jobs(session: Session, job_ids: Sequence[str]) -> dict[str, list[Stretch]]:
    """Of each job that has steps, oldest first. Steps without a stretch are read one by one."""
    columns = [getattr(StepStretch, name) for name in FIELDS]
    query = select(StepStretch.job_id, *columns).where(StepStretch.job_id.in_(job_ids))
    found: dict[str, list[Stretch]] = {}
    for row in session.execute(query.order_by(StepStretch.job_id, StepStretch.first_id)):
        found.setdefault(row.job_id, []).append(Stretch(*row[1:]))
    first = (
        select(Metric.job_id, func.min(Metric.id).label("first"))
        .where(Metric.job_id.in_(job_ids))
        .group_by(Metric.job_id)
    )
    for job_id, metric_id in session.execute(first):
        known = found.get(job_id, [])
        if not known or metric_id < known[0].first_id:
            until = known[0].first_id - 1 if known else None
            found[job_id] = stretches(steps(session, job_id, metric_id, until)) + known
    return found


def steps(session: Session, job_id: str, first_id: int, last_id: int | None) -> Iterable[Stretch]:
    """Step by step, from metric `first_id` to `last_id`, or to the newest."""
    query = select(Metric.id, Metric.attempt, Metric.step, Metric.at, Metric.step_time_s, Metric.cost)
    query = query.where(Metric.job_id == job_id, Metric.id >= first_id)
    if last_id is not None:
        query = query.where(Metric.id <= last_id)
    for row in session.execute(query.order_by(Metric.id).execution_options(yield_per=10_000)):
        yield one_step(row.id, row.attempt, row.step, microseconds(row.at), row.step_time_s, row.cost)
