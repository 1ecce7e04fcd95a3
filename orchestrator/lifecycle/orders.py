"""Orders for supervisors, made from SQL alone: the same order comes out after any crash."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from orchestrator.lifecycle.reports import GangOrder
from orchestrator.store import jobs, placements
from orchestrator.store.tables import Placement
from orchestrator.topology.fabric import Fabric


def order_of(
    session: Session, job_id: str, incarnation: int, *, storage_directory: Path, fencing_token: int
) -> GangOrder:
    row = session.get_one(Placement, (job_id, incarnation))
    return GangOrder(
        job_id=job_id,
        incarnation=incarnation,
        first_attempt=row.first_attempt,
        restarts_used=row.restarts_used,
        deaths_at_step=(row.deaths_step, row.deaths_count),
        spec=jobs.spec_of(session, job_id),
        slots=placements.slots_of(row),
        fabric=Fabric(placements.nodes_of(row)),
        job_directory=str(storage_directory / job_id),
        fencing_token=fencing_token,
        spent=row.spent,
    )
