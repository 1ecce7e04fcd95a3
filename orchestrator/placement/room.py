"""What of a fabric may be given out: free slots, and free CPUs of their nodes.

CPUs are a number per node, slots have a place in the fabric. So the solver reasons about slots alone, and is handed no
more slots of a node than its CPUs can feed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from orchestrator.placement.placement import Placement
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Slot

_ROUNDING = 1e-6
"""Ray counts CPUs in ten-thousandths; sums of such fractions miss a whole number by far less than this."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one job holds of the cluster."""

    slots: Sequence[Slot]
    cpus_per_rank: float


@dataclass(frozen=True, slots=True)
class Room:
    """Free slots, and free CPUs by node; a node without a number has as many as anybody wants."""

    slots: frozenset[Slot]
    cpus: Mapping[str, float] = field(default_factory=dict)

    def without(self, placement: Placement) -> Room:
        """What is left once `placement` is made."""
        used = cpus_used([Holding(placement.slots, placement.cpus_per_rank)])
        cpus = self.cpus
        if used:
            cpus = {node: free - used.get(node, 0.0) for node, free in cpus.items()}
        return Room(self.slots.difference(placement.slots), cpus)


def free_room(fabric: Fabric, holdings: Iterable[Holding]) -> Room:
    """Slots of living nodes that take work, without what is held and what is cut into parts (MIG); and the CPUs that
    are left on their nodes."""
    holdings = list(holdings)
    nodes = [node for node in fabric.nodes if node.alive and node.schedulable]
    slots = {
        Slot(node.name, index)
        for node in nodes
        for index in range(node.accelerators)
        if index not in node.partitioned
    }
    used = cpus_used(holdings)
    cpus = {node.name: node.cpus - used.get(node.name, 0.0) for node in nodes if node.cpus is not None}
    return Room(frozenset(slots.difference(*(holding.slots for holding in holdings))), cpus)


def cpus_used(holdings: Iterable[Holding]) -> Mapping[str, float]:
    """CPUs by node; nodes of jobs that reserve none are left out."""
    used: defaultdict[str, float] = defaultdict(float)
    for holding in holdings:
        if holding.cpus_per_rank > 0:
            for node, ranks in Counter(slot.node for slot in holding.slots).items():
                used[node] += ranks * holding.cpus_per_rank
    return dict(used)


def fed_slots(
    fabric: Fabric, free: AbstractSet[Slot], cpus: Mapping[str, float], *, per_rank: float, group: int
) -> frozenset[Slot]:
    """Of `free` as many slots of each node as its free CPUs feed, `per_rank` each.

    Whole groups of `group` ranks (a tensor group) are kept together within an island first: where islands are smaller
    than a node, another choice could take away the last group that fits.
    """
    if per_rank <= 0:
        return frozenset(free)
    by_node: defaultdict[str, list[Slot]] = defaultdict(list)
    for slot in sorted(free):
        by_node[slot.node].append(slot)
    kept: list[Slot] = []
    for node, slots in by_node.items():
        fed = math.floor(cpus[node] / per_rank + _ROUNDING) if node in cpus else len(slots)
        kept += slots if fed >= len(slots) else _grouped(fabric, slots, group)[: max(fed, 0)]
    return frozenset(kept)


def _grouped(fabric: Fabric, slots: Sequence[Slot], group: int) -> list[Slot]:
    """Slots of one node, those that make whole groups within an island before the others."""
    islands: defaultdict[str | None, list[Slot]] = defaultdict(list)
    for slot in slots:
        islands[fabric.domain(slot, Tier.ISLAND)].append(slot)
    whole, rest = [], []
    for members in islands.values():
        count = len(members) // group * group
        whole += members[:count]
        rest += members[count:]
    return whole + rest


def short_of_cpus(
    fabric: Fabric, placement: Placement, cpus: Mapping[str, float], *, per_rank: float
) -> tuple[str, ...]:
    """One sentence a node of `placement` whose CPUs do not feed its ranks, the nearest miss first."""
    short: list[tuple[float, str]] = []
    for name, ranks in Counter(slot.node for slot in placement.slots).items():
        free, needed = cpus.get(name, math.inf), ranks * per_rank
        if free + _ROUNDING * per_rank >= needed:
            continue
        node = fabric.node(name)
        total = free if node is None or node.cpus is None else node.cpus
        who = "its rank" if ranks == 1 else f"its {ranks} ranks"
        sentence = (
            f"node {name}: {free:g} of {total:g} CPUs free, {needed:g} needed for {who} "
            f"(resources.cpus_per_rank {per_rank:g})"
        )
        short.append((needed - free, sentence))
    return tuple(sentence for _, sentence in sorted(short))
