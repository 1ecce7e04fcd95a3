"""What a job that does not fit could change so that it fits now: one field each, smallest change first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.placement.feasible import fits, required_tiers
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import TIERS
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.search import SearchCutShortError
from orchestrator.spec.sections import AxisRule, PlacementSpec


def smallest_change(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> tuple[str, ...]:
    """Sentences; empty when no single change helps. A rule to the next tier that serves, then fewer replicas."""
    if not any(pocket.free for table in tables for pocket in table.pockets):
        return ()
    return (*_wider_rules(mesh, rules, tables), *_fewer_replicas(mesh, rules, tables))


def _wider_rules(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> Iterator[str]:
    for axis, tier in reversed(required_tiers(mesh, rules).items()):
        for wider in TIERS[TIERS.index(tier) + 1 :]:
            relaxed = rules.model_copy(update={axis: AxisRule(tier=wider)})
            if _fits(mesh, relaxed, tables):
                yield f"It fits now with placement.{axis} {{tier: {wider}}} instead of {tier}."
                break


def _fewer_replicas(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> Iterator[str]:
    """Divisors of the number asked for alone: batch and shards are split as before."""
    asked = mesh.degree("dp")
    for dp in range(asked - 1, 0, -1):
        if asked % dp == 0 and _fits(_with_replicas(mesh, dp), rules, tables):
            yield f"It fits now with parallelism.dp {dp} instead of {asked}."
            return


def _with_replicas(mesh: Mesh, dp: int) -> Mesh:
    degrees = tuple(dp if axis == "dp" else mesh.degree(axis) for axis in mesh.axes)
    size = mesh.size // mesh.degree("dp") * dp
    return Mesh(degrees, mesh.axes, ep=mesh.ep if size % mesh.ep == 0 else 1)


def _fits(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> bool:
    try:
        return any(fits(mesh, rules, table) for table in tables)
    except SearchCutShortError:
        return False
