"""Health of a job: findings about its ranks, and the heat map; blame of nodes over all jobs."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import LARGEST_ID, DatabaseOf, JobId
from api.problems import answers
from api.schemas.health import (
    BlameView,
    FindingView,
    HealthView,
    HeatMapBlockView,
    HeatMapView,
    NodeBlame,
)
from orchestrator.health.blame import blame_of
from orchestrator.health.finding import Category
from orchestrator.health.heat import PLANES, HeatBlock
from orchestrator.lifecycle.states import JobState
from orchestrator.spec.sections import HealthSpec
from orchestrator.store import attempts, health, jobs

router = APIRouter(prefix="/api/v1", tags=["health"])

AttemptOf = Annotated[
    int | None,
    Query(ge=1, le=LARGEST_ID, description="Attempt; left out: all of them, or the newest heat map."),
]


@router.get("/jobs/{job_id}/health", operation_id="getJobHealth", responses=answers(404, 422, 503))
def get_job_health(job_id: JobId, database: DatabaseOf, attempt: AttemptOf = None) -> HealthView:
    """Which ranks, nodes and links of the job are slow, and which work is not evenly spread."""
    with database.read() as session:
        job = jobs.get(session, job_id)
        found = health.findings_of(session, job_id, attempt=attempt)
        kept = health.attempts_with_heat(session, job_id)
        policy = job.spec.get("health", {}).get("stragglers", HealthSpec().stragglers)
        if JobState(job.state).is_terminal:
            found = [replace(one, ongoing=False) for one in found]
        else:
            newest = attempts.newest_number(session, job_id)
            found = [replace(one, ongoing=one.ongoing and one.attempt >= newest) for one in found]
        slow_now = any(one.category is Category.STRAGGLER and one.ongoing for one in found)
        return HealthView(
            policy=policy,
            healthy=not slow_now,
            heatmap_attempts=list(kept),
            findings=[FindingView(**one.to_json()) for one in found],
        )


@router.get("/jobs/{job_id}/health/heatmap", operation_id="getHeatMap", responses=answers(404, 422, 503))
def get_heat_map(job_id: JobId, database: DatabaseOf, attempt: AttemptOf = None) -> HeatMapView:
    """Computing and waiting by rank and step, of the newest steps."""
    with database.read() as session:
        job = jobs.get(session, job_id)
        blocks = health.blocks_of(session, job_id, attempt=attempt)
        newest = blocks[-1] if blocks else None
        return HeatMapView(
            attempt=newest.attempt if newest else None,
            ranks=newest.ranks if newest else job.world_size,
            ranks_a_row=newest.ranks_a_row if newest else 1,
            blocks=[_block(block) for block in blocks],
        )


@router.get("/blame", operation_id="getBlame", responses=answers(503))
def get_blame(database: DatabaseOf) -> BlameView:
    """Nodes that were slow, counted over attempts and jobs."""
    with database.read() as session:
        counted = blame_of(health.stragglers_by_node(session))
    return BlameView(items=[NodeBlame(**asdict(blame)) for blame in counted])


def _block(block: HeatBlock) -> HeatMapBlockView:
    return HeatMapBlockView(
        columns=list(block.steps),
        scale_s=dict(zip(PLANES, block.scale_s, strict=True)),
        cells=dict(zip(PLANES, block.planes, strict=True)),
    )
