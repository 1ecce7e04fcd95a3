"""Where the ranks of a job sit, as the body of an answer."""

from __future__ import annotations

from pydantic import ValidationError

from api.schemas.jobs import AxisView, PlacementView, RankView
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.report import ranks_report
from orchestrator.spec.sections import ParallelismSpec
from orchestrator.store import placements
from orchestrator.store.tables import Job, Placement


def placement_view(job: Job, row: Placement) -> PlacementView:
    facts = {fact["rank"]: fact for fact in row.ranks}
    ranks = ranks_report(_mesh(job), placements.slots_of(row), placements.nodes_of(row), facts)
    return PlacementView(
        incarnation=row.incarnation,
        ranks=[RankView(**rank) for rank in ranks],
        axes=[AxisView.model_validate(axis) for axis in row.axes],
        explanation=row.explanation,
        certified=row.certified,
        placed_at=row.placed_at,
        released_at=row.released_at,
    )


def _mesh(job: Job) -> Mesh | None:
    """None when a newer version wrote a plan that this one cannot read."""
    try:
        mesh = Mesh.of(ParallelismSpec.model_validate(job.spec["parallelism"]))
    except (ValidationError, KeyError):
        return None
    return mesh if mesh.size == job.world_size else None
