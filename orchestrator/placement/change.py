"""What a job that does not fit could change so that it fits now: one field each, smallest change first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.placement.feasible import fits, replicas_that_fit, required_tiers
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import TIERS
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.search import SearchCutShortError
from orchestrator.spec.sections import AxisRule, PlacementSpec, Tier


def smallest_change(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> tuple[str, ...]:
    """Sentences; empty when no single change helps. A rule to the next tier that serves, then fewer replicas."""
    return (*_wider_rules(mesh, rules, tables), *_fewer_replicas(mesh, rules, tables))


def _wider_rules(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> Iterator[str]:
    roomy = [table for table in tables if sum(len(pocket.free) for pocket in table.pockets) >= mesh.size]
    for axis, tier in reversed(required_tiers(mesh, rules).items()):

        def serves(wider: Tier, axis: str = axis) -> bool:
            relaxed = rules.model_copy(update={axis: AxisRule(tier=wider)})
            return any(_fits(mesh, relaxed, table) for table in roomy)

        if serves(Tier.ANY):
            wider = next(t for t in TIERS[TIERS.index(tier) + 1 :] if t is Tier.ANY or serves(t))
            yield f"It fits now with placement.{axis} {{tier: {wider}}} instead of {tier}."


def _fewer_replicas(mesh: Mesh, rules: PlacementSpec, tables: Sequence[PocketTable]) -> Iterator[str]:
    """Divisors of the number asked for alone: the batch is split as before, expert groups stay whole."""
    asked = mesh.degree("dp")
    if "dp" in required_tiers(mesh, rules) or "ep" in required_tiers(mesh, rules):
        return
    most = max((replicas_that_fit(mesh, rules, table) for table in tables), default=0)
    shared = mesh.degree("tp") * mesh.degree("cp")
    serving = (dp for dp in range(1, min(most + 1, asked)) if asked % dp == 0 and shared * dp % mesh.ep == 0)
    fewer = max(serving, default=None)
    if fewer is not None:
        yield f"It fits now with parallelism.dp {fewer} instead of {asked}."


def _fits(mesh: Mesh, rules: PlacementSpec, table: PocketTable) -> bool:
    try:
        return fits(mesh, rules, table)
    except SearchCutShortError:
        return False
