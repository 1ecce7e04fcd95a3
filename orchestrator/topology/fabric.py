"""Fabric: nodes, their accelerators and the domains of each tier they lie in.

A domain is named by a string that is unique within its tier. A tier that is not known for a node is absent, and two
nodes with an absent tier are never taken to share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from orchestrator.spec.sections import Tier
from orchestrator.topology.links import Link

SWITCH_TIERS: tuple[Tier, ...] = (Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE)


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    """Host label of the node: what a placement names and Ray pins by."""
    accelerators: int
    domains: Mapping[Tier, str] = field(default_factory=dict)
    """Domain of the node per switch tier (island, leaf, spine, core); unknown tiers are absent."""
    islands: Mapping[int, str] = field(default_factory=dict)
    """Island per accelerator index where islands are smaller than the node (NVLink pairs); overrides `domains`."""
    accelerator: str | None = None
    """Accelerator type: `H100`, `cpu`; None when unknown."""
    alive: bool = True
    schedulable: bool = True
    """False while the node is cordoned or draining."""
    suspect: bool = False
    """Its links were measured and are bad: used only by a job that does not fit without it."""
    cpus: float | None = None
    """CPUs that may be reserved on the node, free or not; None: unknown, never a limit."""
    rails: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Network adapters nearest to each accelerator, several where they are equally near; unknown ones are absent."""
    weak_pairs: frozenset[tuple[int, int]] = frozenset()
    """Accelerators (lower index first) of one island joined by fewer links than the other pairs of it, or by none."""
    partitioned: frozenset[int] = frozenset()
    """Accelerators cut into parts (MIG): each part is a device of its own, none of which NVLink joins to others."""


@dataclass(frozen=True, slots=True, order=True)
class Slot:
    """One accelerator of one node."""

    node: str
    index: int


@dataclass(frozen=True)
class Fabric:
    nodes: tuple[Node, ...]
    links: Mapping[Tier, Link] = field(default_factory=dict)
    """What joins accelerators whose nearest shared tier is the key; unknown tiers are absent."""

    @cached_property
    def _by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def node(self, name: str) -> Node | None:
        return self._by_name.get(name)

    def slots(self) -> frozenset[Slot]:
        """Every accelerator of every node, dead and cordoned nodes included."""
        return frozenset(Slot(node.name, index) for node in self.nodes for index in range(node.accelerators))

    def domain(self, slot: Slot, tier: Tier) -> str | None:
        """Domain of `slot` at `tier`; None when unknown. At tier `node` it is the node's name, at `any` one domain."""
        if tier is Tier.ANY:
            return "any"
        if tier is Tier.NODE:
            return slot.node
        node = self.node(slot.node)
        if node is None:
            return None
        if tier is Tier.ISLAND and slot.index in node.islands:
            return node.islands[slot.index]
        return node.domains.get(tier)
