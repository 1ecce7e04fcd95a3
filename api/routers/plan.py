"""Plan: where a job would run now, or what is missing, and what it would cost; nothing is written."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import DatabaseOf
from api.job_document import JobSpecOf
from api.problems import answers
from api.routers.jobs import JOB_BODY
from api.schemas.estimates import EstimateView, SearchView
from api.schemas.plan import PlanAnswer
from api.views.placement import axis_views, cost_views, rank_views
from orchestrator.estimate.questions import Answer, Question, ask
from orchestrator.placement.demand import workload_of
from orchestrator.placement.explain import plan_label
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import free_room
from orchestrator.placement.solver import solve
from orchestrator.spec.job import JobSpec
from orchestrator.spec.rules import MAX_RANKS
from orchestrator.store import nodes, placements
from orchestrator.topology.fabric import Fabric

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.post(
    "/plan", operation_id="planJob", openapi_extra=JOB_BODY, responses=answers(400, 413, 415, 422, 503)
)
def plan(
    spec: JobSpecOf,
    database: DatabaseOf,
    auto: Annotated[bool, Query(description="Search for the fastest plans; takes seconds.")] = False,
    ranks: Annotated[
        int | None,
        Query(
            ge=1,
            le=MAX_RANKS,
            description="Accelerators a search may use; those of the job's own plan, or all when it has one.",
        ),
    ] = None,
    tokens: Annotated[
        float | None,
        Query(gt=0, description="Budget to estimate the time for; the job's own steps if not given."),
    ] = None,
    checkpoint_stall_s: Annotated[
        float | None,
        Query(gt=0, description="Seconds that training waits for a checkpoint: gives advice on how often."),
    ] = None,
    gpu_hours_between_failures: Annotated[
        float | None, Query(gt=0, description="As measured on this cluster; Llama 3's if not given.")
    ] = None,
) -> PlanAnswer:
    """Solves for the nodes as last seen and the slots and CPUs that are free now; costs are those of the whole
    cluster."""
    with database.read() as session:
        fabric = nodes.known_fabric(session)
        room = free_room(fabric, placements.holdings(session))
    mesh = Mesh.of(spec.parallelism)
    decided = solve(
        mesh,
        spec.placement,
        fabric,
        room.slots,
        resources=spec.resources,
        cpus=room.cpus,
        workload=workload_of(spec),
    )
    question = Question(auto, ranks, tokens, checkpoint_stall_s, gpu_hours_between_failures)
    return _answer(spec, mesh, fabric, decided, ask(spec, fabric, question))


def _answer(
    spec: JobSpec, mesh: Mesh, fabric: Fabric, decided: Placement | Refusal, cost: Answer
) -> PlanAnswer:
    placed = None if isinstance(decided, Refusal) else decided
    refusal = decided if isinstance(decided, Refusal) else None
    return PlanAnswer(
        fits=placed is not None,
        plan=plan_label(spec.parallelism),
        world_size=mesh.size,
        ranks=rank_views(mesh, placed.slots, fabric.nodes, {}) if placed else [],
        axes=axis_views(placed.axes) if placed else [],
        explanation=list(placed.explanation) if placed else [],
        refusal=refusal.message if refusal else None,
        refusal_details=list(refusal.details) if refusal else [],
        changes=list(refusal.changes) if refusal else [],
        costs=cost_views(placed.cost) if placed else [],
        ever=refusal.ever if refusal else True,
        estimate=None if cost.estimate is None else EstimateView.model_validate(cost.estimate),
        search=None if cost.search is None else SearchView.model_validate(cost.search),
        notes=list(cost.notes),
    )
