"""A placement as plain values: what the API answers and the command line prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import AxisOutcome
from orchestrator.placement.priced import Cost
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def ranks_report(
    mesh: Mesh | None,
    slots: Sequence[Slot],
    nodes: Iterable[Node],
    facts: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Every rank and its slot, by rank; without a mesh they have no coordinates.

    `facts` by rank: what the running ranks said; none before they run.
    """
    # A fabric of one node each: a domain is found without a search.
    alone = {node.name: Fabric((node,)) for node in nodes}
    nowhere = Fabric(())
    found = []
    for rank, slot in enumerate(slots):
        fabric = alone.get(slot.node, nowhere)
        said = {} if facts is None else facts.get(rank, {})
        found.append(
            {
                "rank": rank,
                "coordinates": {} if mesh is None else mesh.coordinates(rank),
                "node": slot.node,
                "index": slot.index,
                "island": fabric.domain(slot, Tier.ISLAND),
                "leaf": fabric.domain(slot, Tier.LEAF),
                "pid": said.get("pid"),
                "device": said.get("device"),
            }
        )
    return found


def axis_report(axis: AxisOutcome) -> dict[str, Any]:
    """How an axis came out against its rule."""
    return {**asdict(axis), "asked": axis.asked.value, "widest": axis.widest.value}


def costs_report(cost: Cost | None) -> list[dict[str, Any]]:
    """Communication of a step by axis as placed; empty when the job's traffic is not known."""
    return [
        {
            "axis": axis.axis,
            "seconds": axis.seconds,
            "by_tier": {tier.value: seconds for tier, seconds in axis.by_tier},
            "widest": axis.widest.value,
            "uplink": axis.uplink,
            "overlapped": axis.overlapped,
        }
        for axis in (() if cost is None else cost.axes)
    ]
