"""Orders in which a job's axes may be laid on the fabric, and the levels that the packer makes of them.

The data axis is cut where groups end: `ep`, the neighbours of an expert group beyond one context block; `shard`, those
that ZeRO shards over; `dp`, the rest. The numbering of ranks stays that of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations, product

import numpy as np

from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.placement.outcome import TIERS, ruled_axes
from orchestrator.placement.packing import Level
from orchestrator.spec.sections import AxisRule, PlacementSpec, Tier

_COVERED = {"tp": ("tp",), "cp": ("tp", "cp"), "ep": ("tp", "cp", "ep"), "pp": ("tp", "cp", "pp")}
"""Parts of the mesh that the block of a rule spans."""

_USUAL: tuple[tuple[str, ...], ...] = (
    ("tp", "cp", "ep", "pp", "dp"),
    ("tp", "cp", "pp", "ep", "dp"),
    ("tp", "cp", "ep", "dp", "pp"),
    ("tp", "ep", "dp", "cp", "pp"),
    ("ep", "dp", "tp", "cp", "pp"),
)
"""Orders in which blocks may nest, inner to outer. Rules that nest at all nest in one of these: an outer block needs
the wider tier. The first two are usual; the others serve `dp` confined more narrowly than `pp`, `cp` or `tp`."""

Attempt = tuple[Mesh, tuple[str, ...], list[Level]]
"""The mesh, its axes as they nest, their levels."""


def parts(mesh: Mesh, shards: int = 1) -> Mesh:
    """The mesh with `dp` cut into `ep`, `shard` and `dp`, where such groups begin and end together."""
    dp, block = mesh.degree("dp"), mesh.degree("tp") * mesh.degree("cp")
    experts = mesh.ep // block if mesh.ep % block == 0 else 1
    if dp % experts:
        experts = 1
    sharing = shards // experts if shards % experts == 0 and dp % shards == 0 else 1
    degrees = {axis: mesh.degree(axis) for axis in ("tp", "cp", "pp")}
    degrees |= {"ep": experts, "shard": sharing, "dp": dp // (experts * sharing)}
    return Mesh(tuple(degrees.values()), tuple(degrees))


def usual_attempts(mesh: Mesh, rules: PlacementSpec) -> Iterator[Attempt]:
    """Nestings that serve the rules. A preferred `dp` is tried as if required, at its tier, then at ever wider ones."""
    binding = ruled_axes(mesh, rules)
    dp_tiers: Sequence[Tier | None] = (None,)
    if (dp := binding.get("dp")) is not None and dp.tier is not Tier.ANY:
        wider = TIERS[TIERS.index(dp.tier) : -1]
        dp_tiers = (dp.tier,) if dp.mode == "required" else (*wider, None)
    fine = parts(mesh)
    # A rule of `dp` binds the whole axis, and expert groups may not get in the way of what only whole replicas allow.
    whole = Mesh(mesh.degrees, mesh.axes)
    cut = [(fine, axes, None) for axes in _different(fine, _USUAL)] if fine.degree("ep") > 1 else []
    uncut = [(whole, axes, tier) for tier, axes in product(dp_tiers, _different(whole, _USUAL))]
    for laid, axes, dp_tier in (*cut, *uncut) if dp_tiers == (None,) else uncut:
        levels = []
        for axis in axes:
            rule = binding.get(axis) if axis != "dp" else None
            if axis == "dp":
                level = Level(axis, laid.degree(axis), dp_tier)
            elif rule is None or rule.tier is Tier.ANY:
                level = Level(axis, laid.degree(axis), None)
            else:
                level = Level(axis, laid.degree(axis), rule.tier, soft=rule.mode == "preferred")
            if level.degree > 1 or axis == axes[-1]:
                levels.append(level)
        yield laid, axes, levels


def _different(mesh: Mesh, orders: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Orders of the mesh's axes; of those that differ in axes of one rank alone, the first."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for order in orders:
        axes = tuple(axis for axis in order if axis in mesh.axes)
        axes += tuple(axis for axis in mesh.axes if axis not in axes)
        found.setdefault(tuple(axis for axis in axes if mesh.degree(axis) > 1), axes)
    return list(found.values())


def orders(fine: Mesh, *, nearest_first: Sequence[str], limit: int) -> list[tuple[str, ...]]:
    """At most `limit` orders of the axes with more than one rank: those near to `nearest_first` first."""
    wide = [axis for axis in nearest_first if fine.degree(axis) > 1]
    return list(islice(permutations(wide), limit))


def asked_order(fine: Mesh, order: str) -> tuple[str, ...]:
    """The parts of the mesh in the order of the job file, `shard` just inside `dp`; what it leaves out is outermost."""
    named = [part for axis in order.split("-") for part in (("shard", "dp") if axis == "dp" else (axis,))]
    rest = [axis for axis in fine.axes if axis not in named]
    return tuple(axis for axis in (*named, *rest) if axis in fine.axes and fine.degree(axis) > 1)


def levels_for(fine: Mesh, order: Sequence[str], rules: dict[str, AxisRule]) -> list[Level]:
    """Levels for `order`: an axis's rule is put on the outermost part of its block, the narrowest where several meet.

    Stricter than the rules where an order puts more into a block than they ask for; nothing it packs breaks one.
    """
    at: dict[str, list[AxisRule]] = {}
    for axis, rule in rules.items():
        covered = [part for part in order if part in _COVERED.get(axis, ("ep", "shard", "dp"))]
        if covered and rule.tier is not Tier.ANY:
            at.setdefault(covered[-1], []).append(rule)
    levels = []
    for part in order:
        found = at.get(part, [])
        required = [rule for rule in found if rule.mode == "required"]
        chosen = min(required or found, key=lambda rule: TIERS.index(rule.tier), default=None)
        tier = None if chosen is None else chosen.tier
        levels.append(Level(part, fine.degree(part), tier, soft=tier is not None and not required))
    return levels or [Level("dp", 1, None)]


def ranks_in(fine: Mesh, order: Sequence[str]) -> Ranks:
    """Ranks as `order` lays them out, its first axis fastest."""
    outer = [axis for axis in fine.axes if axis not in order]
    axes = [*outer, *reversed(order)]  # outermost first
    ranks = np.arange(fine.size).reshape(fine.degrees[::-1])
    place = {axis: i for i, axis in enumerate(reversed(fine.axes))}
    return ranks.transpose([place[axis] for axis in axes]).reshape(-1)
