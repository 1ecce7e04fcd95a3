"""Which nodes keep copies of which other nodes' snapshots: a function of the placement alone.

The copy has to survive what takes the original, so it goes to another failure domain: another leaf where the job has
more than one, else another island, else another node. Every node keeps as many copies as it has given away, so that
none needs more memory than the others (NVIDIA's resiliency extension calls the same distance "replication jump": the
blast radius of a failure, in ranks; Gemini, SOSP '23, section 4.1, keeps groups of nodes instead).
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Slot


def partners(slots: Sequence[Slot], fabric: Fabric, *, replicas: int) -> dict[str, tuple[str, ...]]:
    """By node of the placement, the nodes that keep a copy of its ranks' snapshots, first choice first.

    With k replicas on k other nodes the loss of any k nodes leaves a copy of everything. Fewer where the placement has
    too few nodes. Nodes are set in a ring, domain by domain, and each gives to the one that is as many places further
    as the largest domain is wide: outside of its own domain whenever no domain holds more than half of the nodes.
    """
    nodes = list(dict.fromkeys(slot.node for slot in slots))
    domains = _domains(nodes, fabric)
    members: dict[str, list[str]] = {}
    for node in nodes:
        members.setdefault(domains[node], []).append(node)
    ring = [
        node for domain in sorted(members, key=lambda d: (-len(members[d]), d)) for node in members[domain]
    ]
    jump = max(len(found) for found in members.values())
    return {node: _choices(ring, place, jump, replicas) for place, node in enumerate(ring)}


def _choices(ring: Sequence[str], place: int, jump: int, replicas: int) -> tuple[str, ...]:
    """The nodes 1, 2, ... jumps further; where the ring closes too early, the next one not taken."""
    size = len(ring)
    taken = [0]
    for number in range(1, min(replicas, size - 1) + 1):
        shift = number * jump % size
        while shift in taken:
            shift = (shift + 1) % size
        taken.append(shift)
    return tuple(ring[(place + shift) % size] for shift in taken[1:])


def _domains(nodes: Sequence[str], fabric: Fabric) -> dict[str, str]:
    """The failure domain of each node: at the widest tier at which they lie in more than one. A node whose domain is
    not known is one of its own."""
    for tier in (Tier.LEAF, Tier.ISLAND):
        found = {node: _domain(node, fabric, tier) for node in nodes}
        if len(set(found.values())) > 1:
            return {node: f"node {node}" if domain is None else domain for node, domain in found.items()}
    return {node: node for node in nodes}


def _domain(node: str, fabric: Fabric, tier: Tier) -> str | None:
    known = fabric.node(node)
    return known.domains.get(tier) if known is not None else None
