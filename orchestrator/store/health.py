"""Health of jobs: the findings of each attempt as they were told last, and the newest blocks of the heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from orchestrator.health.finding import Category, Finding
from orchestrator.health.heat import HeatBlock
from orchestrator.lifecycle.reports import HealthReport
from orchestrator.store.tables import HealthFinding, HeatMapBlock

BLOCKS_KEPT = 16
"""Of a job; the oldest give way: 512 columns."""
COUNTED = 5_000
"""Findings, of all jobs, from which nodes are blamed."""


def keep(session: Session, job_id: str, report: HealthReport, *, at: datetime) -> None:
    """Makes the store say of the attempt what `report` says: findings it no longer has go."""
    mine = (HealthFinding.job_id == job_id, HealthFinding.attempt == report.attempt)
    told = {one.key: one for one in report.findings}
    for row in session.scalars(select(HealthFinding).where(*mine)).all():
        one = told.pop((row.category, row.subject, row.from_step), None)
        if one is None:
            session.delete(row)
        elif (data := one.to_json()) != row.data:
            row.data, row.at = data, at
    session.add_all(_row(job_id, one, at) for one in told.values())
    for block in report.blocks:
        session.merge(
            HeatMapBlock(job_id=job_id, attempt=block.attempt, number=block.number, data=asdict(block))
        )
    session.flush()
    _forget_old_blocks(session, job_id)


def _row(job_id: str, one: Finding, at: datetime) -> HealthFinding:
    return HealthFinding(
        job_id=job_id,
        attempt=one.attempt,
        category=one.category.value,
        subject=one.subject,
        from_step=one.from_step,
        node=one.nodes[0] if len(one.nodes) == 1 else None,
        at=at,
        data=one.to_json(),
    )


def _forget_old_blocks(session: Session, job_id: str) -> None:
    keys = select(HeatMapBlock.attempt, HeatMapBlock.number).where(HeatMapBlock.job_id == job_id)
    order = (HeatMapBlock.attempt.desc(), HeatMapBlock.number.desc())
    old = [
        (attempt, number) for attempt, number in session.execute(keys.order_by(*order).offset(BLOCKS_KEPT))
    ]
    if old:
        found = tuple_(HeatMapBlock.attempt, HeatMapBlock.number).in_(old)
        query = delete(HeatMapBlock).where(HeatMapBlock.job_id == job_id, found)
        session.execute(query.execution_options(synchronize_session=False))


def findings_of(session: Session, job_id: str, *, attempt: int | None = None) -> Sequence[Finding]:
    """Of one attempt or of all, newest attempt first, then by first step."""
    query = select(HealthFinding.data).where(HealthFinding.job_id == job_id)
    if attempt is not None:
        query = query.where(HealthFinding.attempt == attempt)
    order = (HealthFinding.attempt.desc(), HealthFinding.from_step, HealthFinding.subject)
    return [Finding.from_json(data) for data in session.scalars(query.order_by(*order))]


def blocks_of(session: Session, job_id: str, *, attempt: int | None = None) -> Sequence[HeatBlock]:
    """Blocks of an attempt, of the newest that has any when that is None, oldest first."""
    if attempt is None:
        newest = select(HeatMapBlock.attempt).where(HeatMapBlock.job_id == job_id)
        attempt = session.scalars(newest.order_by(HeatMapBlock.attempt.desc()).limit(1)).one_or_none()
    query = select(HeatMapBlock.data).where(HeatMapBlock.job_id == job_id, HeatMapBlock.attempt == attempt)
    return [_block(data) for data in session.scalars(query.order_by(HeatMapBlock.number))]


def attempts_with_heat(session: Session, job_id: str) -> Sequence[int]:
    """Attempts of which blocks are kept, newest first."""
    query = select(HeatMapBlock.attempt).where(HeatMapBlock.job_id == job_id).distinct()
    return session.scalars(query.order_by(HeatMapBlock.attempt.desc())).all()


def stragglers_by_node(session: Session) -> Mapping[str, Sequence[tuple[str, Finding]]]:
    """By node, (job id, finding) of the stragglers that are about that node alone, whatever job and attempt: of the
    newest COUNTED, oldest first."""
    query = select(HealthFinding.node, HealthFinding.job_id, HealthFinding.data).where(
        HealthFinding.category == Category.STRAGGLER.value, HealthFinding.node.is_not(None)
    )
    newest = session.execute(query.order_by(HealthFinding.at.desc()).limit(COUNTED)).all()
    found: dict[str, list[tuple[str, Finding]]] = {}
    for node, job_id, data in reversed(newest):
        found.setdefault(node, []).append((job_id, Finding.from_json(data)))
    return found


def _block(data: Mapping[str, Any]) -> HeatBlock:
    listed = {name: tuple(data[name]) for name in ("scale_s", "planes")}
    return HeatBlock(**{**data, **listed, "steps": tuple(tuple(column) for column in data["steps"])})
