"""`atoll plan --fabric`: the server's answer, made here for an empty fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atoll.answers import Axis, Estimate, PlacedAxisCost, PlanAnswer, PlanSearch, Rank
from atoll.errors import AtollError
from orchestrator.estimate.questions import Question, ask
from orchestrator.placement.demand import workload_of
from orchestrator.placement.explain import plan_label
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.solver import solve
from orchestrator.spec import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError


class FabricFileError(AtollError):
    """A fabric file that cannot be taken."""


def fabric_of(path: Path) -> Fabric:
    """The fabric that a topology file of any known format describes."""
    try:
        return read_fabric([FabricFile.parse(str(path))]).fabric
    except InvalidFabricError as error:
        raise FabricFileError(str(error)) from None


def plan_on(fabric: Fabric, document: dict[str, Any], question: Question) -> PlanAnswer:
    """`document` is a checked job."""
    spec = parse_spec(document)
    mesh = Mesh.of(spec.parallelism)
    decided = solve(
        mesh, spec.placement, fabric, fabric.slots(), resources=spec.resources, workload=workload_of(spec)
    )
    cost = ask(spec, fabric, question)
    refusal = decided if isinstance(decided, Refusal) else None
    placed = None if isinstance(decided, Refusal) else decided
    return PlanAnswer(
        fits=placed is not None,
        plan=plan_label(spec.parallelism),
        world_size=mesh.size,
        ranks=[] if placed is None else _ranks(mesh, placed, fabric),
        axes=[] if placed is None else _axes(placed),
        explanation=[] if placed is None else list(placed.explanation),
        refusal=None if refusal is None else refusal.message,
        refusal_details=[] if refusal is None else list(refusal.details),
        changes=[] if refusal is None else list(refusal.changes),
        costs=[] if placed is None else _costs(placed),
        ever=True if refusal is None else refusal.ever,
        estimate=None if cost.estimate is None else Estimate.model_validate(cost.estimate),
        search=None if cost.search is None else PlanSearch.model_validate(cost.search),
        notes=list(cost.notes),
    )


def _ranks(mesh: Mesh, placed: Placement, fabric: Fabric) -> list[Rank]:
    return [
        Rank(
            rank=rank,
            coordinates=mesh.coordinates(rank),
            node=slot.node,
            index=slot.index,
            island=fabric.domain(slot, Tier.ISLAND),
            leaf=fabric.domain(slot, Tier.LEAF),
            pid=None,
            device=None,
        )
        for rank, slot in enumerate(placed.slots)
    ]


def _axes(placed: Placement) -> list[Axis]:
    return [
        Axis(
            axis=outcome.axis,
            asked=outcome.asked.value,
            mode=outcome.mode,
            groups=outcome.groups,
            widest=outcome.widest.value,
            outside=outcome.outside,
        )
        for outcome in placed.axes
    ]


def _costs(placed: Placement) -> list[PlacedAxisCost]:
    return [
        PlacedAxisCost(
            axis=axis.axis,
            seconds=axis.seconds,
            by_tier={tier.value: seconds for tier, seconds in axis.by_tier},
            widest=axis.widest.value,
            uplink=axis.uplink,
            overlapped=axis.overlapped,
        )
        for axis in (() if placed.cost is None else placed.cost.axes)
    ]
