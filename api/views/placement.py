"""Where ranks sit, stored or only planned, as bodies of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from api.schemas.jobs import AxisCostView, AxisView, PlacementView, RankView
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import AxisOutcome
from orchestrator.placement.priced import Cost
from orchestrator.spec.sections import ParallelismSpec, Tier
from orchestrator.store import placements
from orchestrator.store.tables import Job, Placement
from orchestrator.topology.fabric import Fabric, Node, Slot


def placement_view(job: Job, row: Placement) -> PlacementView:
    facts = {fact["rank"]: fact for fact in row.ranks}
    return PlacementView(
        incarnation=row.incarnation,
        ranks=rank_views(_mesh(job), placements.slots_of(row), placements.nodes_of(row), facts),
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


def rank_views(
    mesh: Mesh | None, slots: Sequence[Slot], nodes: Iterable[Node], facts: Mapping[int, Mapping[str, Any]]
) -> list[RankView]:
    """Without a mesh ranks have no coordinates. `facts` by rank: what the running ranks said; empty before they run."""
    alone = {
        node.name: Fabric((node,)) for node in nodes
    }  # one node each: a domain is found without a search
    nowhere = Fabric(())
    views = []
    for rank, slot in enumerate(slots):
        fabric = alone.get(slot.node, nowhere)
        said = facts.get(rank, {})
        views.append(
            RankView(
                rank=rank,
                coordinates={} if mesh is None else mesh.coordinates(rank),
                node=slot.node,
                index=slot.index,
                island=fabric.domain(slot, Tier.ISLAND),
                leaf=fabric.domain(slot, Tier.LEAF),
                pid=said.get("pid"),
                device=said.get("device"),
            )
        )
    return views


def axis_views(axes: Iterable[AxisOutcome]) -> list[AxisView]:
    return [AxisView.model_validate(placements.axis_to_json(axis)) for axis in axes]


def cost_views(cost: Cost | None) -> list[AxisCostView]:
    """Empty when the job's traffic is not known."""
    return [
        AxisCostView(
            axis=axis.axis,
            seconds=axis.seconds,
            by_tier={tier.value: seconds for tier, seconds in axis.by_tier},
            widest=axis.widest.value,
            uplink=axis.uplink,
            overlapped=axis.overlapped,
        )
        for axis in (() if cost is None else cost.axes)
    ]
