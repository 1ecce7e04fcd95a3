"""Goodput of a job and of all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AfterValidator

from api.dependencies import DatabaseOf, JobId
from api.problems import answers, invalid
from api.schemas.goodput import ClusterGoodput, GoodputView
from api.views.goodput import cluster_goodput, job_goodput
from orchestrator.spec.violations import Violation
from orchestrator.store import jobs

SPAN = timedelta(hours=24)
LONGEST = timedelta(days=366)


def _in_utc(at: datetime) -> datetime:
    """A time without a zone is UTC. ValueError for one that no clock of ours has ever shown."""
    if not 1970 < at.year < 9999:
        raise ValueError("must lie between the years 1971 and 9998")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


Time = Annotated[datetime, AfterValidator(_in_utc)]

router = APIRouter(prefix="/api/v1", tags=["goodput"])


@router.get("/jobs/{job_id}/goodput", operation_id="getGoodput", responses=answers(404, 422, 503))
def get_goodput(job_id: JobId, database: DatabaseOf) -> GoodputView:
    """Every GPU-second of the job since its submission, in exactly one class, and what became of each fault."""
    with database.read() as session:
        return job_goodput(session, jobs.get(session, job_id), now=database.now())


@router.get("/goodput", operation_id="getClusterGoodput", responses=answers(422, 503))
def get_cluster_goodput(
    database: DatabaseOf,
    since: Annotated[Time | None, Query(description="RFC 3339; left out: 24 hours before the end.")] = None,
    until: Annotated[Time | None, Query(description="RFC 3339; left out or later: now.")] = None,
) -> ClusterGoodput:
    """Every GPU-second of all jobs between two times, together and by project."""
    now = database.now()
    end = min(until or now, now)
    begin = since or end - SPAN
    if not timedelta(0) < end - begin <= LONGEST:
        wanted = f"must lie before `until` and before now, by {LONGEST.days} days at most"
        raise invalid([Violation("query.since", begin.isoformat(), wanted)])
    with database.read() as session:
        return cluster_goodput(session, begin, end, now=now)
