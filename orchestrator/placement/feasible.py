"""Slots that keep every required rule: found whenever there are some.

By counting (`packing`), in every order in which blocks may nest; by a bounded search where counting is not exact.
"""

from __future__ import annotations

import numpy as np

from orchestrator.placement.found import Found, Judge
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.nesting import ranks_in, usual_attempts
from orchestrator.placement.outcome import ruled_axes
from orchestrator.placement.packing import Packer, Place
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.search import crossing, search
from orchestrator.spec.sections import PlacementSpec, Tier


def fits(mesh: Mesh, rules: PlacementSpec, table: PocketTable) -> bool:
    """Whether a placement on the free slots of `table` exists. SearchCutShortError when the search gave up."""
    everything = range(len(table.pockets))
    for laid, axes, levels in usual_attempts(mesh, rules):
        if _exact(mesh, rules) and Packer(table, levels).capacity(everything, len(levels) - 1) >= 1:
            return True
        if not _exact(mesh, rules):
            places = Packer(table, levels).pack()
            judge, ranks = Judge(mesh, rules, table), ranks_in(laid, axes)
            if places is not None and judge.packed(ranks, places).allowed:
                return True
    return _searched(mesh, rules, table) is not None


def replicas_that_fit(mesh: Mesh, rules: PlacementSpec, table: PocketTable) -> int:
    """How many replicas of the job fit, `dp` and `ep` not being required inside a tier."""
    fine = Mesh(tuple(1 if axis == "dp" else mesh.degree(axis) for axis in mesh.axes), mesh.axes)
    _, _, levels = next(iter(usual_attempts(fine, rules)))
    return Packer(table, levels).capacity(range(len(table.pockets)), len(levels) - 1)


def packed(judge: Judge) -> Found | None:
    """The best placement among all nestings and degradations."""
    best: Found | None = None
    for laid, axes, levels in usual_attempts(judge.mesh, judge.rules):
        places = Packer(judge.table, levels).pack()
        if places is None:
            continue
        order = tuple(axis for axis in axes if laid.degree(axis) > 1)
        found = judge.packed(ranks_in(laid, order), places, order)
        if not found.allowed:
            continue
        # The first in score counts: cost has its say when orders are compared.
        if best is None or found.score < best.score:
            best = found
        if best.perfect:
            return best
    if best is None and (searched := _searched(judge.mesh, judge.rules, judge.table)) is not None:
        best = judge.packed(np.arange(judge.mesh.size), searched)
    return best


def required_tiers(mesh: Mesh, rules: PlacementSpec) -> dict[str, Tier]:
    binding = ruled_axes(mesh, rules).items()
    return {
        axis: rule.tier for axis, rule in binding if rule.mode == "required" and rule.tier is not Tier.ANY
    }


def _exact(mesh: Mesh, rules: PlacementSpec) -> bool:
    """Whether a packing keeps every required rule by its levels alone: expert groups need not fill their level."""
    return "ep" not in required_tiers(mesh, rules)


def _searched(mesh: Mesh, rules: PlacementSpec, table: PocketTable) -> list[Place] | None:
    """Exact search where counting is not exact: `dp` required and labels that cut across one another, or `ep` required,
    whose groups need not nest with those of other axes."""
    required = required_tiers(mesh, rules)
    if "ep" in required or ("dp" in required and crossing(table, list(required.values()))):
        return search(table, mesh, required)
    return None
