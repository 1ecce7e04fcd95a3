"""How each axis came out on given slots. The solver reports it, the certificate proves it from what ranks say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import AxisOutcome
from orchestrator.spec.sections import AxisRule, PlacementSpec, Tier

TIERS: tuple[Tier, ...] = tuple(Tier)
"""Nearest first; the last, `any`, holds for every group."""

CONTEXT_AXES: tuple[str, ...] = ("tp", "cp")
"""Axes inside one context block: the rule of `cp` covers its ranks with all their tensor ranks."""

PIPELINE_AXES: tuple[str, ...] = ("tp", "cp", "pp")
"""Axes inside one pipeline: the rule of `pp` covers all stages with all their tensor and context ranks."""

DomainOf = Callable[[int, Tier], str | None]
"""Domain of a rank at a tier; None when unknown, which matches nothing."""


def ruled_axes(mesh: Mesh, rules: PlacementSpec) -> dict[str, AxisRule]:
    """Rules that bind: those of axes with more than one rank. Alone in its group, a rank is near all of it."""
    found: dict[str, AxisRule | None] = {axis: getattr(rules, axis, None) for axis in mesh.axes}
    return {axis: rule for axis, rule in found.items() if rule is not None and mesh.degree(axis) > 1}


def together(mesh: Mesh, axis: str) -> list[tuple[int, ...]]:
    """Sets of ranks that the rule of `axis` keeps together: its groups, whole blocks for `cp` and `pp`."""
    whole = {"cp": CONTEXT_AXES, "pp": PIPELINE_AXES}
    return mesh.blocks(whole[axis]) if axis in whole else mesh.groups(axis)


def axis_outcomes(mesh: Mesh, rules: PlacementSpec, domain_of: DomainOf) -> tuple[AxisOutcome, ...]:
    """Outcome of every axis with more than one rank, in the order of the mesh."""
    return tuple(_outcome(mesh, axis, rule, domain_of) for axis, rule in ruled_axes(mesh, rules).items())


def _outcome(mesh: Mesh, axis: str, rule: AxisRule, domain_of: DomainOf) -> AxisOutcome:
    sets = together(mesh, axis)
    groups_per_set = len(sets[0]) // mesh.degree(axis)
    widest, outside = 0, 0
    for ranks in sets:
        outside += groups_per_set * (not shares(ranks, rule.tier, domain_of))
        while not shares(ranks, TIERS[widest], domain_of):
            widest += 1
    return AxisOutcome(
        axis=axis,
        asked=rule.tier,
        mode=rule.mode,
        groups=groups_per_set * len(sets),
        widest=TIERS[widest],
        outside=outside,
    )


def shares(ranks: Sequence[int], tier: Tier, domain_of: DomainOf) -> bool:
    """Whether all of `ranks` lie in one known domain of `tier`."""
    if tier is Tier.ANY:
        return True
    first = domain_of(ranks[0], tier)
    return first is not None and all(domain_of(rank, tier) == first for rank in ranks)
