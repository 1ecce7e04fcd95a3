"""Spare nodes: which free nodes could take the place of one of a job's, near enough to keep its rules.

A spare lies under the leaf of the nodes it stands in for (inside their island where islands span nodes), has their type
of accelerator and as many free accelerators as the job uses on any node there.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.names import natural_key


def spares_by_leaf(
    fabric: Fabric,
    free: AbstractSet[Slot],
    placed: Sequence[Slot],
    *,
    per_leaf: int,
    suspect: AbstractSet[str] = frozenset(),
) -> Mapping[str, tuple[str, ...]]:
    """By domain that the job uses (leaf, or island of many nodes), the names of at most `per_leaf` spare nodes: those
    with the fewest free accelerators first, so that whole nodes stay whole. Fewer, or none, where there are no more;
    nodes of the job whose domain is not known have none. The job's own nodes are no spares."""
    used = Counter(slot.node for slot in placed)
    nodes = {name: node for name in used if (node := fabric.node(name)) is not None}
    tier = home_tier(fabric)
    needed: defaultdict[str, list[tuple[int, str | None]]] = defaultdict(list)
    for name, node in nodes.items():
        if (home := node.domains.get(tier)) is not None:
            needed[home].append((used[name], node.accelerator))
    room = Counter(slot.node for slot in free)
    found: dict[str, tuple[str, ...]] = {}
    for home in sorted(needed, key=natural_key):
        most = max(count for count, _ in needed[home])
        kinds = {kind for _, kind in needed[home]}
        serving = [
            node
            for node in fabric.nodes
            if node.domains.get(tier) == home
            and _takes_work(node)
            and node.name not in suspect
            and node.name not in used
            and {node.accelerator} == kinds
            and room[node.name] >= most
        ]
        serving.sort(key=lambda node: (room[node.name], natural_key(node.name)))
        found[home] = tuple(node.name for node in serving[:per_leaf])
    return found


def home_tier(fabric: Fabric) -> Tier:
    """The tier in which a spare stands in for a node: islands where they span nodes, since a node outside would break
    the rule of tp; else leaves."""
    islands = Counter(node.domains[Tier.ISLAND] for node in fabric.nodes if Tier.ISLAND in node.domains)
    return Tier.ISLAND if any(count > 1 for count in islands.values()) else Tier.LEAF


def _takes_work(node: Node) -> bool:
    return node.alive and node.schedulable
