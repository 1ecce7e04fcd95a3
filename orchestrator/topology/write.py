"""A fabric as Atoll's own fabric file: what `sources/yaml_file` reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import yaml

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Of a domain in a fabric file."""


def fabric_to_yaml(fabric: Fabric, *, notes: Sequence[str] = ()) -> str:
    """`notes` go before it as comments. Rails and CPUs have no place in the format; absent nodes are left out. Domains
    whose names the format does not take get others: `leaf-0`, `leaf-1` ..."""
    names = {tier: _names(fabric, tier) for tier in SWITCH_TIERS}
    document = {
        "nodes": [_entry(node, names) for node in fabric.nodes if node.alive],
        "links": {tier.value: _link(fabric.links[tier]) for tier in Tier if tier in fabric.links},
    }
    comments = "".join(f"# {line}\n" for note in notes for line in note.splitlines())
    return comments + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def _names(fabric: Fabric, tier: Tier) -> dict[str, str]:
    """What every domain of a tier is called in the file."""
    domains = sorted({n.domains[tier] for n in fabric.nodes if tier in n.domains}, key=natural_key)
    taken, fresh = set(domains), (f"{tier.value}-{number}" for number in count())
    others = (name for name in fresh if name not in taken)
    return {name: name if NAME.fullmatch(name) else next(others) for name in domains}


def _entry(node: Node, names: Mapping[Tier, Mapping[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name}
    if node.accelerators:
        found["accelerators"] = node.accelerators
    if node.accelerator is not None:
        found["accelerator"] = node.accelerator
    found |= {tier.value: names[tier][name] for tier, name in node.domains.items()}
    if node.islands:
        inside: dict[str, list[int]] = {}
        for index, island in sorted(node.islands.items()):
            label = island.removeprefix(f"{node.name}/")
            inside.setdefault(label if NAME.fullmatch(label) else f"i{len(inside)}", []).append(index)
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
    return {key: value for key, value in found.items() if value is not None} | (
        {"measured": True} if link.measured else {}
    )
