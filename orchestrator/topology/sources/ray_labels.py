"""Fabric from Ray's node list: labels `host`, `island`, `leaf`, `spine`, `core`, `accelerator` (bare keys).

The number of accelerators of a node is its number of unit resources `gpu0`, `gpu1`, ..., and its `GPU` count where it
advertises none; its CPUs are Ray's `CPU`. Ray says nothing about islands smaller than a node: those come from a fabric
file (`merge`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.names import natural_key

_UNIT_RESOURCE = re.compile(r"gpu(0|[1-9]\d*)")


def fabric_from_ray_nodes(nodes: Sequence[Mapping[str, Any]]) -> Fabric:
    """Fabric of `ray.nodes()`; nodes in natural order of their names.

    A living node without accelerators (a head) is left out. Ray forgets the resources of dead nodes: those keep their
    labels and have 0 accelerators. Of a dead and a living node with one host label the living one counts; two living
    ones cannot be told apart by a placement, so the host is not schedulable until one of them is gone.
    """
    found: dict[str, Node] = {}
    for entry in sorted(nodes, key=lambda entry: str(entry.get("NodeID", ""))):
        node = _node(entry)
        if node.alive and node.accelerators == 0:
            continue
        known = found.get(node.name)
        if known is None or (node.alive and not known.alive):
            found[node.name] = node
        elif node.alive and known.alive:
            found[node.name] = replace(known, schedulable=False)
    return Fabric(tuple(sorted(found.values(), key=lambda node: natural_key(node.name))))


def _node(entry: Mapping[str, Any]) -> Node:
    labels: Mapping[str, str] = entry.get("Labels") or {}
    resources: Mapping[str, float] = entry.get("Resources") or {}
    alive = bool(entry.get("Alive", entry.get("alive", False)))
    return Node(
        name=labels.get("host") or str(entry["NodeID"]),
        accelerators=_accelerators(resources),
        domains={tier: labels[tier] for tier in SWITCH_TIERS if labels.get(tier)},
        accelerator=labels.get("accelerator") or labels.get("ray.io/accelerator-type") or None,
        alive=alive,
        cpus=float(resources.get("CPU", 0.0)) if alive else None,
    )


def _accelerators(resources: Mapping[str, float]) -> int:
    """Unit resources `gpu0` ... counted without a gap: an index above a missing one cannot be addressed."""
    indexes = {int(match[1]) for name in resources if (match := _UNIT_RESOURCE.fullmatch(name))}
    if not indexes:
        return int(resources.get("GPU", 0))
    return next(count for count in range(len(indexes) + 1) if count not in indexes)
