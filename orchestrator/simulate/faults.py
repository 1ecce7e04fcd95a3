"""Fault traces: when which node was down. InfiniteHBD's (400 nodes of 8 GPUs, 348 days, StepFun 2025) is one.

JSON list of {node_id, event_time (days), event_type: fault_start | fault_end, fault_type}; faults of a node may
overlap.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.simulate.philly import InvalidTraceError
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Slot

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, order=True)
class NodeChange:
    at_s: float
    """Seconds since the beginning of the trace."""
    node: str
    alive: bool


def read_faults(text: str, fabric: Fabric, *, origin: str, seed: int) -> list[NodeChange]:
    """Changes of the fabric's nodes in the order of time. The trace's nodes are dealt out to the fabric's at random by
    `seed`; those that find no place are left out. InvalidTraceError."""
    try:
        document = json.loads(text)
        entries = [_entry(number, entry) for number, entry in enumerate(document)]
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidTraceError(f"{origin} is no fault trace: {error}") from None
    names = list(dict.fromkeys(node for _, node, _ in entries))
    nodes = [node.name for node in fabric.nodes]
    random.Random(seed).shuffle(nodes)
    place = dict(zip(names, nodes, strict=False))
    # A fault may end in the moment in which it begins: the beginning comes first.
    entries.sort(key=lambda entry: (entry[0], entry[1], not entry[2]))
    return list(_changes((at_s, place[node], begins) for at_s, node, begins in entries if node in place))


def _entry(number: int, entry: Any) -> tuple[float, str, bool]:
    """(time, node of the trace, whether the fault begins)."""
    kind = entry["event_type"]
    if kind not in ("fault_start", "fault_end"):
        raise ValueError(f"entry {number}: event_type is {kind!r}, expected fault_start or fault_end")
    return float(entry["event_time"]) * DAY_S, str(entry["node_id"]), kind == "fault_start"


def _changes(entries: Iterator[tuple[float, str, bool]]) -> Iterator[NodeChange]:
    """A node is down from its first open fault to the end of its last."""
    open_faults: Counter[str] = Counter()
    for at_s, node, begins in entries:
        before = open_faults[node]
        open_faults[node] = max(0, before + (1 if begins else -1))
        if (before == 0) != (open_faults[node] == 0):
            yield NodeChange(at_s, node, alive=not begins)


def nodes_of(fabric: Fabric, wanted: str) -> Sequence[str]:
    """Nodes of a domain written as `leaf=l3` or `node=n7`. ValueError says what there is."""
    name, equals, domain = wanted.partition("=")
    tiers = [tier for tier in Tier if tier is not Tier.ANY]
    if not equals or name not in [tier.value for tier in tiers]:
        choices = ", ".join(f"{tier.value}=NAME" for tier in tiers)
        raise ValueError(f"{wanted!r} names no part of the fabric: expected one of {choices}")
    tier = Tier(name)

    def domains(node_name: str, count: int) -> set[str | None]:
        return {fabric.domain(Slot(node_name, index), tier) for index in range(count)}

    found = [node.name for node in fabric.nodes if domain in domains(node.name, node.accelerators)]
    if not found:
        known = {d for node in fabric.nodes for d in domains(node.name, node.accelerators) if d is not None}
        there = ", ".join(sorted(known)[:8]) or "none is known"
        raise ValueError(f"the fabric has no {name} {domain}; there are: {there}")
    return found
