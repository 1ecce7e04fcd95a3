"""Goodput of a job."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import DatabaseOf, JobId, utc_now
from api.problems import answers
from api.schemas.goodput import GoodputView
from orchestrator.goodput.ledger import ledger
from orchestrator.goodput.stored import history_of
from orchestrator.store import jobs

router = APIRouter(prefix="/api/v1/jobs/{job_id}", tags=["history"])


@router.get("/goodput", operation_id="getGoodput", responses=answers(404, 422, 503))
def get_goodput(job_id: JobId, database: DatabaseOf) -> GoodputView:
    """Every GPU-second of the job since its submission, in exactly one class."""
    with database.read() as session:
        job = jobs.get(session, job_id)
        now = utc_now()
        history = history_of(session, job, now=now)
        return GoodputView(gpus=job.world_size, until=job.finished_at or now, **ledger(history).to_json())
