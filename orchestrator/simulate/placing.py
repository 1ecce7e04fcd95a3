"""The solver's answers for the simulation. The one place that asks it.

Two questions of many are answered without it, and in the same way (a test holds them together):
- a job for which too little is free, by counting what every placement needs at least;
- a job that fits into one pocket (the free accelerators of one island on one node), by the solver's own order of
  pockets: whole domains stay whole, nearest tier first, then the least is left over, then the first.
Everything else is asked of `placement.solver.solve`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.placement.outcome import ruled_axes
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.pockets import UNKNOWN, PocketTable
from orchestrator.placement.room import Room
from orchestrator.placement.solver import solve
from orchestrator.simulate.jobs import Shape
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Slot

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Tier:
    """Domains of one tier: that of each pocket, and accelerators of each domain."""

    number: Counts
    total: Counts

    def free(self, by_pocket: Counts) -> Counts:
        """Free accelerators by domain."""
        return np.bincount(self.number, weights=by_pocket, minlength=len(self.total)).astype(np.int64)


class Placer:
    """Answers for one fabric; another fabric needs another placer. Remembers what did not fit until more is free."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        usable = [node for node in fabric.nodes if node.alive and node.schedulable]
        self._slots = [Slot(node.name, index) for node in usable for index in range(node.accelerators)]
        kinds = {node.accelerator for node in fabric.nodes if node.accelerators}
        self._plain = len(kinds) == 1
        """One type of accelerators, and every tier known everywhere or nowhere."""
        table = PocketTable(fabric, frozenset(self._slots), lambda node: node.alive and node.schedulable)
        self._pockets = [[Slot(pocket.node, index) for index in pocket.free] for pocket in table.pockets]
        self._pocket_of = {slot: number for number, slots in enumerate(self._pockets) for slot in slots}
        totals: Counts = np.array([len(slots) for slots in self._pockets], dtype=np.int64)
        self._totals = totals
        self._tiers: dict[Tier, _Tier] = {}
        for tier in reversed(table.locality):  # narrowest first
            numbers = np.array(table.numbers[tier], dtype=np.int64)
            if (numbers == UNKNOWN).all():
                continue
            if (numbers == UNKNOWN).any():
                self._plain = False
                continue
            self._tiers[tier] = _Tier(numbers, np.bincount(numbers, weights=totals).astype(np.int64))
        self._room = Room(frozenset())
        self._free: Counts = np.zeros(len(self._pockets), dtype=np.int64)
        self._refused: dict[Shape, Refusal] = {}
        self._ever: dict[Shape, Refusal | None] = {}
        self.solves = 0
        """Questions asked of the solver."""

    def place(self, shape: Shape, room: Room) -> Placement | Refusal:
        self._enter(room)
        if (known := self._refused.get(shape)) is not None:
            return known
        answer = self._answer(shape, room)
        if isinstance(answer, Refusal):
            self._refused[shape] = answer
        return answer

    def free_by_pocket(self, room: Room) -> tuple[Counts, Counts]:
        """(free, total) accelerators of each island on each usable node."""
        self._enter(room)
        return self._free, self._totals

    def _enter(self, room: Room) -> None:
        if room is self._room:
            return
        more = room.slots - self._room.slots
        if more or room.cpus != self._room.cpus:
            self._refused.clear()  # what did not fit into more does not fit into less
        for slots, by in ((more, 1), (self._room.slots - room.slots, -1)):
            for slot in slots:
                if (number := self._pocket_of.get(slot)) is not None:
                    self._free[number] += by
        self._room = room

    def _answer(self, shape: Shape, room: Room) -> Placement | Refusal:
        if self._plain and shape.resources.cpus_per_rank <= 0 and shape.resources.accelerator is None:
            if not self._may_fit(shape):
                return self._never(shape) or Refusal(f"less than the {shape.mesh.size} needed are free")
            if (pocket := self._best_pocket(shape)) is not None:
                free = [slot for slot in self._pockets[pocket] if slot in room.slots]
                return Placement(tuple(free[: shape.mesh.size]), ())
        return self._solve(shape, room)

    def _solve(self, shape: Shape, room: Room) -> Placement | Refusal:
        self.solves += 1
        return solve(
            shape.mesh, shape.rules, self.fabric, room.slots, resources=shape.resources, cpus=room.cpus
        )

    def _never(self, shape: Shape) -> Refusal | None:
        """The refusal of a job that does not fit when everything is free either."""
        if shape not in self._ever:
            answer = self._solve(shape, Room(frozenset(self._slots)))
            self._ever[shape] = answer if isinstance(answer, Refusal) and not answer.ever else None
        return self._ever[shape]

    def _required(self, shape: Shape) -> dict[str, Tier]:
        rules = ruled_axes(shape.mesh, shape.rules).items()
        return {a: rule.tier for a, rule in rules if rule.mode == "required" and rule.tier is not Tier.ANY}

    def _may_fit(self, shape: Shape) -> bool:
        """False when counting alone says no: accelerators, tensor groups, or the parts of pipelines in each domain."""
        if int(self._free.sum()) < shape.mesh.size:
            return False
        required = self._required(shape)
        group = self._tiers.get(required["tp"]) if "tp" in required else None
        if group is None:
            return True
        tp = shape.mesh.degree("tp")
        groups = group.free(self._free) // tp
        if int(groups.sum()) < shape.mesh.size // tp:
            return False
        whole = self._tiers.get(required["pp"]) if "pp" in required else None
        if whole is None:
            return True
        # An upper bound where a tensor domain lies across domains of the pipelines' tier: it counts in each of them.
        pairs = np.unique(np.stack([group.number, whole.number]), axis=1)
        parts = np.bincount(pairs[1], weights=groups[pairs[0]], minlength=len(whole.total)).astype(np.int64)
        pipelines = int((parts // (shape.mesh.degree("pp") * shape.mesh.degree("cp"))).sum())
        return pipelines >= shape.mesh.degree("dp")

    def _best_pocket(self, shape: Shape) -> int | None:
        """The pocket that the solver takes for the whole job; None when there is none, or when rules forbid to say."""
        size = shape.mesh.size
        if any(tier not in self._tiers for tier in self._required(shape).values()) or (
            shape.mesh.degree("dp") > 1 and shape.rules.dp.tier is not Tier.ANY
        ):
            return None
        best = np.flatnonzero(self._free >= size)
        if len(best) == 0:
            return None
        frees = [(tier, tier.free(self._free)) for tier in self._tiers.values()]
        broken = [(free == tier.total) & (free > size) for tier, free in frees]
        for costs in (broken, [free for _, free in frees]):
            for (tier, _), cost in zip(frees, costs, strict=True):
                if len(best) == 1:
                    return int(best[0])
                of_each = cost[tier.number[best]]
                best = best[of_each == of_each.min()]
        return int(best[0])
