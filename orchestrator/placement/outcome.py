"""How each axis came out on given slots. The solver reports it, the certificate proves it from what ranks say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.placement.placement import AxisOutcome
from orchestrator.placement.seating import Numbers
from orchestrator.spec.sections import AxisRule, PlacementSpec, Tier

TIERS: tuple[Tier, ...] = tuple(Tier)
"""Nearest first; the last, `any`, holds for every group."""

KNOWN_TIERS: tuple[Tier, ...] = TIERS[:-1]
"""Tiers at which a rank has a domain, or an unknown one, which matches nothing."""

CONTEXT_AXES: tuple[str, ...] = ("tp", "cp")
"""Axes inside one context block: the rule of `cp` covers its ranks with all their tensor ranks."""

PIPELINE_AXES: tuple[str, ...] = ("tp", "cp", "pp")
"""Axes inside one pipeline: the rule of `pp` covers all stages with all their tensor and context ranks."""

RULED: tuple[str, ...] = ("tp", "cp", "ep", "pp", "dp")
"""Axes that may have a rule, in the order in which preferences count."""


def ruled_axes(mesh: Mesh, rules: PlacementSpec) -> dict[str, AxisRule]:
    """Rules that bind: those of axes with more than one rank. Alone in its group, a rank is near all of it."""
    found: dict[str, AxisRule] = {}
    for axis in RULED:
        degree = mesh.ep if axis == "ep" else mesh.degree(axis)
        if degree > 1:
            found[axis] = getattr(rules, axis)
    return found


def together(mesh: Mesh, axis: str) -> Ranks:
    """Sets of ranks that a rule keeps together, (sets, ranks): groups of the axis, whole blocks for `cp` and `pp`."""
    if axis == "ep":
        return mesh.neighbours(mesh.ep)
    return mesh.members({"cp": CONTEXT_AXES, "pp": PIPELINE_AXES}.get(axis, (axis,)))


def axis_outcomes(
    mesh: Mesh, rules: PlacementSpec, domains: Mapping[Tier, Numbers]
) -> tuple[AxisOutcome, ...]:
    """Outcome of every axis with more than one rank."""
    return tuple(_outcome(mesh, axis, rule, domains) for axis, rule in ruled_axes(mesh, rules).items())


def _outcome(mesh: Mesh, axis: str, rule: AxisRule, domains: Mapping[Tier, Numbers]) -> AxisOutcome:
    sets = together(mesh, axis)
    groups_per_set = sets.shape[1] // (mesh.ep if axis == "ep" else mesh.degree(axis))
    outside = 0 if rule.tier is Tier.ANY else len(sets) - len(sets[_shares(sets, rule.tier, domains)])
    widest, left = TIERS[0], sets
    for tier in TIERS:
        widest = tier
        left = left[:0] if tier is Tier.ANY else left[~_shares(left, tier, domains)]
        if not len(left):
            break
    return AxisOutcome(
        axis=axis,
        asked=rule.tier,
        mode=rule.mode,
        groups=groups_per_set * len(sets),
        widest=widest,
        outside=groups_per_set * outside,
    )


def _shares(sets: Ranks, tier: Tier, domains: Mapping[Tier, Numbers]) -> NDArray[np.bool_]:
    """Which sets lie in one known domain of `tier`."""
    found = domains[tier][sets]
    first = found[:, :1]
    shares: NDArray[np.bool_] = (first[:, 0] >= 0) & (found == first).all(axis=1)
    return shares
