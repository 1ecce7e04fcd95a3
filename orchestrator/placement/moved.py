"""Another place for the part of a placement that lost its nodes, while the rest of the job stays where it is.

Nearest first: a spare node under the same leaf (or in the same island) for each lost node, which takes over its ranks
and nothing else; then the pipelines that had ranks on lost nodes, placed again as a whole by the solver. A node changes
hands as a whole: none is shared between ranks that stay and ranks that came. Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import KNOWN_TIERS, PIPELINE_AXES, TIERS, axis_outcomes
from orchestrator.placement.placement import AxisOutcome, Placement, Refusal
from orchestrator.placement.room import Room
from orchestrator.placement.seating import numbered
from orchestrator.placement.solver import solve
from orchestrator.placement.spares import home_tier, spares_by_leaf
from orchestrator.spec.sections import PlacementSpec, ResourcesSpec
from orchestrator.topology.fabric import Fabric, Slot
from orchestrator.topology.names import natural_key


@dataclass(frozen=True, slots=True)
class Moved:
    placement: Placement
    """Of the whole job; ranks that stay have the slots they had."""
    ranks: tuple[int, ...]
    """Those that moved, ascending."""
    left: tuple[Slot, ...]
    """Slots on living nodes that the job gives back: free once its ranks there are gone."""
    near: bool
    """Spare nodes took over from the lost ones, one for one, and nothing else moved."""
    replicas: int | None = None
    """Data replicas that are left, where some were dropped."""
    passed_over: tuple[str, ...] = ()
    """Why nothing nearer would do, a sentence each."""


@dataclass(frozen=True, slots=True)
class Part:
    """The question: a job on `slots` has lost `lost`. `fabric` knows its lost nodes as they were when they lived;
    `room` is what is free, on none of those."""

    mesh: Mesh
    rules: PlacementSpec
    resources: ResourcesSpec
    fabric: Fabric
    room: Room
    slots: tuple[Slot, ...]
    lost: AbstractSet[str]

    @property
    def lost_ranks(self) -> tuple[int, ...]:
        return tuple(rank for rank, slot in enumerate(self.slots) if slot.node in self.lost)

    def with_moved(self, seats: dict[int, Slot]) -> tuple[Slot, ...]:
        return tuple(seats.get(rank, slot) for rank, slot in enumerate(self.slots))

    def outcomes(self, slots: Sequence[Slot]) -> tuple[AxisOutcome, ...]:
        domains = numbered(
            self.mesh.size, KNOWN_TIERS, lambda rank, tier: self.fabric.domain(slots[rank], tier)
        )
        return axis_outcomes(self.mesh, self.rules, domains)


def moved_part(part: Part) -> Moved | Refusal:
    """The nearest place for what was lost, or why there is none short of placing the whole job again."""
    near = _near(part)
    if isinstance(near, Moved):
        return near
    elsewhere = _elsewhere(part, near)
    if isinstance(elsewhere, Moved):
        return elsewhere
    return Refusal("; ".join((near, elsewhere)), (near, elsewhere))


def dropped(part: Part, dp: int) -> Moved | str:
    """The job on `dp` of its whole replicas, the first ones; the others are given back. Or why not."""
    healthy = whole_replicas(part)
    if len(healthy) < dp:
        return f"{_counted(len(healthy), 'replica')} left whole, {dp} needed"
    slots = tuple(part.slots[rank] for block in healthy[:dp] for rank in block)
    stay = {slot.node for slot in slots}
    left = tuple(s for s in part.slots if s not in set(slots) and s.node not in part.lost)
    if shared := sorted({slot.node for slot in left} & stay, key=natural_key):
        return f"node {shared[0]} has ranks of a replica that stays and of one that would go"
    degrees = tuple(dp if axis == "dp" else part.mesh.degree(axis) for axis in part.mesh.axes)
    mesh = Mesh(degrees, part.mesh.axes, part.mesh.ep)
    outcomes = replace(part, mesh=mesh, slots=slots).outcomes(slots)
    why = (f"{dp} of {len(part.mesh.blocks(PIPELINE_AXES))} replicas go on.",)
    placement = Placement(slots, outcomes, why, cpus_per_rank=part.resources.cpus_per_rank)
    return Moved(placement, (), left, near=False, replicas=dp)


def whole_replicas(part: Part) -> list[tuple[int, ...]]:
    """Ranks of each replica that has none on a lost node."""
    lost = set(part.lost_ranks)
    return [block for block in part.mesh.blocks(PIPELINE_AXES) if not lost.intersection(block)]


def _near(part: Part) -> Moved | str:
    """A spare for each lost node, or why not."""
    spares = _spares(part)
    if isinstance(spares, str):
        return spares
    seats: dict[int, Slot] = {}
    for node, spare in spares.items():
        ranks = [rank for rank in part.lost_ranks if part.slots[rank].node == node]
        free = sorted(slot.index for slot in part.room.slots if slot.node == spare)
        indexes = [part.slots[rank].index for rank in ranks]
        chosen = indexes if set(indexes) <= set(free) else free[: len(ranks)]
        seats |= {rank: Slot(spare, index) for rank, index in zip(ranks, chosen, strict=True)}
    slots = part.with_moved(seats)
    outcomes = part.outcomes(slots)
    if worse := _worse(part.outcomes(part.slots), outcomes):
        return f"on spare nodes {', '.join(spares.values())} axis {worse} would be wider than it was"
    names = ", ".join(f"{spare} for {node}" for node, spare in spares.items())
    return _moved(part, slots, seats, outcomes, near=True, why=(f"Spare node {names}.",))


def _spares(part: Part) -> dict[str, str] | str:
    """Spare by lost node, or which lost node has none."""
    tier = home_tier(part.fabric)
    suspect = part.lost | {node.name for node in part.fabric.nodes if node.suspect}
    own = {slot.node for slot in part.slots}
    free = {slot for slot in part.room.slots if slot.node not in own}
    chosen: dict[str, str] = {}
    for name in sorted({part.slots[rank].node for rank in part.lost_ranks}, key=natural_key):
        slots = [slot for slot in part.slots if slot.node == name]
        found = spares_by_leaf(part.fabric, free, slots, per_leaf=len(part.fabric.nodes), suspect=suspect)
        needed = len(slots) * part.resources.cpus_per_rank
        spare = next(
            (
                spare
                for spares in found.values()
                for spare in spares
                if spare not in chosen.values() and part.room.cpus.get(spare, needed) >= needed
            ),
            None,
        )
        if spare is None:
            home = next(iter(found), "(unknown)")
            return f"no node of {tier} {home} is free to stand in for {name}"
        chosen[name] = spare
    return chosen


def _elsewhere(part: Part, nearer: str) -> Moved | str:
    """The pipelines with lost ranks, placed again, or why not."""
    lost = set(part.lost_ranks)
    pipelines = [block for block in part.mesh.blocks(PIPELINE_AXES) if lost.intersection(block)]
    moving = sorted(rank for block in pipelines for rank in block)
    if len(moving) == part.mesh.size:
        return "every pipeline of the job has lost a node, so nothing of it could stay"
    staying = {slot.node for rank, slot in enumerate(part.slots) if rank not in set(moving)}
    own = [part.slots[rank] for rank in moving if part.slots[rank].node not in part.lost]
    if shared := sorted({slot.node for slot in own} & staying, key=natural_key):
        return f"node {shared[0]} has ranks of a pipeline that is broken and of one that is whole"
    free = {slot for slot in part.room.slots if slot.node not in staying} | set(own)
    cpus = dict(part.room.cpus)
    for slot in own:
        if slot.node in cpus:
            cpus[slot.node] += part.resources.cpus_per_rank
    degrees = {axis: part.mesh.degree(axis) for axis in part.mesh.axes} | {"dp": len(pipelines)}
    sub = Mesh(tuple(degrees[axis] for axis in part.mesh.axes), part.mesh.axes)
    kinds = {node.accelerator for slot in part.slots if (node := part.fabric.node(slot.node)) is not None}
    mixes = part.resources.mix_accelerators and part.resources.accelerator is None
    nodes = (node for node in part.fabric.nodes if node.name not in part.lost)
    alike = Fabric(tuple(node for node in nodes if mixes or node.accelerator in kinds), part.fabric.links)
    found = solve(sub, part.rules, alike, free, resources=part.resources, cpus=cpus)
    if isinstance(found, Refusal):
        return f"no other place for {_counted(len(pipelines), 'broken pipeline')}: {found.message}"
    ranks = [rank for block in sub.blocks(PIPELINE_AXES) for rank in block]
    seats = {
        rank: found.slots[inner]
        for rank, inner in zip((r for block in pipelines for r in block), ranks, strict=True)
    }
    slots = part.with_moved(seats)
    outcomes = part.outcomes(slots)
    if broken := [o.axis for o in outcomes if o.mode == "required" and o.outside]:
        return f"moved, the broken pipelines would break the rule of {broken[0]}"
    why = (f"{_counted(len(pipelines), 'pipeline')} placed again, the others stay.", *found.explanation)
    return _moved(part, slots, seats, outcomes, near=False, why=why, passed_over=(nearer,))


def _moved(
    part: Part,
    slots: tuple[Slot, ...],
    seats: dict[int, Slot],
    outcomes: tuple[AxisOutcome, ...],
    *,
    near: bool,
    why: tuple[str, ...],
    passed_over: tuple[str, ...] = (),
) -> Moved:
    kept = set(slots)
    left = tuple(slot for slot in part.slots if slot.node not in part.lost and slot not in kept)
    ranks = tuple(rank for rank in sorted(seats) if seats[rank] != part.slots[rank])
    placement = Placement(slots, outcomes, why, cpus_per_rank=part.resources.cpus_per_rank)
    return Moved(placement, ranks, left, near, passed_over=passed_over)


def _worse(before: Sequence[AxisOutcome], after: Sequence[AxisOutcome]) -> str | None:
    """An axis that has more groups outside its tier than before, or wider ones."""
    for old, new in zip(before, after, strict=True):
        if (new.outside, TIERS.index(new.widest)) > (old.outside, TIERS.index(old.widest)):
            return new.axis
    return None


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
