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
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.simulate.jobs import LONGEST_S
from orchestrator.simulate.philly import PROBLEMS_SHOWN, InvalidTraceError
from orchestrator.spec.sections import Tier
from orchestrator.spec.sentences import field_sentence
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
    entries = _entries(text, origin)
    names = list(dict.fromkeys(node for _, node, _ in entries))
    nodes = [node.name for node in fabric.nodes]
    random.Random(seed).shuffle(nodes)
    place = dict(zip(names, nodes, strict=False))
    # A fault may end in the moment in which it begins: the beginning comes first.
    entries.sort(key=lambda entry: (entry[0], entry[1], not entry[2]))
    return list(_changes((at_s, place[node], begins) for at_s, node, begins in entries if node in place))


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    node_id: str | int
    event_time: Annotated[float, Field(ge=0, le=LONGEST_S / DAY_S)]
    """Days."""
    event_type: Literal["fault_start", "fault_end"]


def _entries(text: str, origin: str) -> list[tuple[float, str, bool]]:
    """(time in seconds, node of the trace, whether the fault begins), in the order of the file."""
    found, problems = [], []
    for number, entry in enumerate(_list_in(text, origin), start=1):
        try:
            fault = _Entry.model_validate(entry)
        except ValidationError as error:
            problems += [f"entry {number}: {field_sentence(detail)}" for detail in error.errors()]
            continue
        found.append((fault.event_time * DAY_S, str(fault.node_id), fault.event_type == "fault_start"))
    if len(problems) > PROBLEMS_SHOWN:
        problems[PROBLEMS_SHOWN:] = [f"{len(problems) - PROBLEMS_SHOWN} more like these"]
    if problems:
        raise InvalidTraceError(f"{origin} is no fault trace: {'; '.join(problems)}")
    return found


def _list_in(text: str, origin: str) -> list[Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "nested too deeply" if isinstance(error, RecursionError) else f"not valid JSON: {error}"
        raise InvalidTraceError(f"{origin} is no fault trace: {what}") from None
    if not isinstance(document, list):
        what = "expected a list of {node_id, event_time, event_type}"
        raise InvalidTraceError(f"{origin} is no fault trace: {what}")
    return document


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
