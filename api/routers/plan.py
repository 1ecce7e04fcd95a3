"""Plan: where a job would run now, or what is missing, and what it would cost; nothing is written."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from api.dependencies import DatabaseOf, SearchesOf
from api.job_document import JobSpecOf
from api.problems import answers
from api.routers.jobs import JOB_BODY
from api.schemas.plan import PlanAnswer
from orchestrator.estimate.planned import planned
from orchestrator.estimate.questions import LEAST, MOST_GPU_HOURS, MOST_STALL_S, MOST_TOKENS, Question
from orchestrator.placement.room import Room, free_room
from orchestrator.spec.job import JobSpec
from orchestrator.spec.rules import MAX_RANKS
from orchestrator.store import nodes, placements
from orchestrator.store.engine import Database
from orchestrator.topology.fabric import Fabric

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.post(
    "/plan", operation_id="planJob", openapi_extra=JOB_BODY, responses=answers(400, 413, 415, 422, 503)
)
async def plan(
    spec: JobSpecOf,
    database: DatabaseOf,
    searches: SearchesOf,
    auto: Annotated[bool, Query(description="Search for the fastest plans; takes seconds.")] = False,
    ranks: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_RANKS,
            description="Accelerators a search may use. Not given: those of the job's own plan; when that has one, all "
            "usable ones of the type that the job asks for, else of the type with most.",
        ),
    ] = None,
    tokens: Annotated[
        float | None,
        Query(
            ge=1,
            le=MOST_TOKENS,
            description="Budget to estimate the time for; the job's own steps if not given.",
        ),
    ] = None,
    checkpoint_stall_s: Annotated[
        float | None,
        Query(
            ge=LEAST,
            le=MOST_STALL_S,
            description="Seconds that training waits for a checkpoint: gives advice on how often.",
        ),
    ] = None,
    gpu_hours_between_failures: Annotated[
        float | None,
        Query(
            ge=LEAST, le=MOST_GPU_HOURS, description="As measured on this cluster; Llama 3's if not given."
        ),
    ] = None,
) -> PlanAnswer:
    """Solves for the nodes as last seen and the slots and CPUs that are free now; costs are those of the whole
    cluster. A search is 503 when it is not done within a minute; other requests are served meanwhile."""
    fabric, room = await run_in_threadpool(_now, database)
    question = Question(auto, ranks, tokens, checkpoint_stall_s, gpu_hours_between_failures)
    if auto:
        return PlanAnswer.model_validate(await searches.run(planned, spec, fabric, room, question))
    return await run_in_threadpool(_answer, spec, fabric, room, question)


def _now(database: Database) -> tuple[Fabric, Room]:
    with database.read() as session:
        fabric = nodes.known_fabric(session)
        return fabric, free_room(fabric, placements.holdings(session))


def _answer(spec: JobSpec, fabric: Fabric, room: Room, question: Question) -> PlanAnswer:
    return PlanAnswer.model_validate(planned(spec, fabric, room, question))
