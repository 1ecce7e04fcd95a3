"""A fabric as Atoll's own fabric file: what `sources/yaml_file` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.links import Link


def fabric_to_yaml(fabric: Fabric, *, notes: Sequence[str] = ()) -> str:
    """`notes` go before it as comments. Rails and CPUs have no place in the format; absent nodes are left out."""
    document = {
        "nodes": [_entry(node) for node in fabric.nodes if node.alive],
        "links": {tier.value: _link(fabric.links[tier]) for tier in Tier if tier in fabric.links},
    }
    comments = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    return comments + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _entry(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name}
    if node.accelerators:
        found["accelerators"] = node.accelerators
    if node.accelerator is not None:
        found["accelerator"] = node.accelerator
    found |= {tier.value: node.domains[tier] for tier in SWITCH_TIERS if tier in node.domains}
    if node.islands:
        inside: dict[str, list[int]] = {}
        for index, island in sorted(node.islands.items()):
            inside.setdefault(island.removeprefix(f"{node.name}/"), []).append(index)
        found["islands"] = inside
    if node.weak_pairs:
        found["weak_pairs"] = [list(pair) for pair in sorted(node.weak_pairs)]
    if node.partitioned:
        found["partitioned"] = sorted(node.partitioned)
    if not node.schedulable:
        found["schedulable"] = False
    if node.suspect:
        found["suspect"] = True
    return found


def _link(link: Link) -> dict[str, Any]:
    found = {
        "kind": link.kind,
        "bandwidth_bytes_per_s": link.bandwidth,
        "latency_s": link.latency_s,
        "uplink_bytes_per_s": link.uplink,
    }
    return {key: value for key, value in found.items() if value is not None}
