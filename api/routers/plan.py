"""Plan: where a job would run now, or what is missing; nothing is written."""

from __future__ import annotations

from fastapi import APIRouter

from api.dependencies import DatabaseOf
from api.job_document import JobSpecOf
from api.problems import answers
from api.routers.jobs import JOB_BODY
from api.schemas.jobs import PlanAnswer
from api.views.placement import axis_views, cost_views, rank_views
from orchestrator.placement.demand import workload_of
from orchestrator.placement.explain import plan_label
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Refusal
from orchestrator.placement.room import free_room
from orchestrator.placement.solver import solve
from orchestrator.store import nodes, placements

router = APIRouter(prefix="/api/v1", tags=["cluster"])


@router.post(
    "/plan", operation_id="planJob", openapi_extra=JOB_BODY, responses=answers(400, 413, 415, 422, 503)
)
def plan(spec: JobSpecOf, database: DatabaseOf) -> PlanAnswer:
    """Solves for the nodes as last seen and the slots and CPUs that are free now."""
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
    label = plan_label(spec.parallelism)
    if isinstance(decided, Refusal):
        return PlanAnswer(
            fits=False,
            plan=label,
            world_size=mesh.size,
            ranks=[],
            axes=[],
            explanation=[],
            refusal=decided.message,
            refusal_details=list(decided.details),
            changes=list(decided.changes),
            costs=[],
            ever=decided.ever,
        )
    return PlanAnswer(
        fits=True,
        plan=label,
        world_size=mesh.size,
        ranks=rank_views(mesh, decided.slots, fabric.nodes, {}),
        axes=axis_views(decided.axes),
        explanation=list(decided.explanation),
        refusal=None,
        refusal_details=[],
        changes=[],
        costs=cost_views(decided.cost),
        ever=True,
    )
