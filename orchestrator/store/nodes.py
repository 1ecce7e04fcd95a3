"""Nodes of the cluster as the controller last saw them: what the API shows without being a Ray driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.spec.sections import Tier
from orchestrator.store import links
from orchestrator.store.errors import NodeNotFoundError
from orchestrator.store.tables import ClusterNode, Placement
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key

FORGOTTEN_AFTER = timedelta(days=7)
"""A lost node is shown for this long after it was last seen alive: longer than a repair of hardware usually takes, and
short enough that nodes of an autoscaler, whose names never come back, do not pile up."""


def observe(session: Session, fabric: Fabric, *, now: datetime) -> None:
    """Stores what the cluster knows now; nodes it knows no more are kept as dead, and forgotten after a week.

    A dead node that was never seen alive is stored when somebody declared its size. Ray goes on listing its dead nodes,
    without a size: those were seen alive, or are of no interest.
    """
    known = {row.name: row for row in session.scalars(select(ClusterNode))}
    for node in fabric.nodes:
        row = known.pop(node.name, None)
        if row is None:
            if not node.alive and node.accelerators == 0:
                continue
            row = ClusterNode(name=node.name, first_seen=now, last_seen=now)
            session.add(row)
        row.accelerators, row.accelerator = node.accelerators, node.accelerator
        row.domains, row.islands = _domains(node), _islands(node)
        row.alive, row.schedulable, row.cpus = node.alive, node.schedulable, node.cpus
        row.details = _details(node)
        if node.alive:
            row.last_seen = now
        elif node.accelerators == 0:
            known[node.name] = row
    for row in known.values():
        row.alive = False
    links.replace(session, fabric.links)
    _forget(session, [row for row in known.values() if now - row.last_seen >= FORGOTTEN_AFTER])
    session.flush()


def _forget(session: Session, rows: Sequence[ClusterNode]) -> None:
    """Removes nodes that are long lost; one whose slots are still held stays until they are free."""
    if not rows:
        return
    placed = session.scalars(select(Placement.slots).where(Placement.released_at.is_(None)))
    held = {node for slots in placed for node, _ in slots}
    for row in rows:
        if row.name not in held:
            session.delete(row)


def known_fabric(session: Session) -> Fabric:
    """The fabric as it was last observed."""
    return Fabric(_nodes(every(session)), links.known(session))


def fabric_of(rows: Sequence[ClusterNode]) -> Fabric:
    """Nodes alone, without links: for counting what is there and free."""
    return Fabric(_nodes(rows))


def _nodes(rows: Sequence[ClusterNode]) -> tuple[Node, ...]:
    """In natural order of their names, as every other source gives them: what solves equal costs goes by it."""
    return tuple(sorted((_node(row) for row in rows), key=lambda node: natural_key(node.name)))


def every(session: Session) -> Sequence[ClusterNode]:
    """By name."""
    return session.scalars(select(ClusterNode).order_by(ClusterNode.name)).all()


def get(session: Session, name: str) -> ClusterNode:
    """NodeNotFoundError for one that was never seen, or is forgotten."""
    row = session.get(ClusterNode, name)
    if row is None:
        raise NodeNotFoundError(name)
    return row


def node_to_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "accelerators": node.accelerators,
        "domains": _domains(node),
        "islands": _islands(node),
        "accelerator": node.accelerator,
        "alive": node.alive,
        "schedulable": node.schedulable,
        "cpus": node.cpus,
        "details": _details(node),
    }


def node_from_json(document: Mapping[str, Any]) -> Node:
    return Node(
        name=document["name"],
        accelerators=document["accelerators"],
        domains=_tiers(document["domains"]),
        islands={int(index): name for index, name in document["islands"].items()},
        accelerator=document["accelerator"],
        alive=document["alive"],
        schedulable=document["schedulable"],
        cpus=document.get("cpus"),  # placements made before CPUs were counted have none
        **_detailed(document.get("details", {})),
    )


def _node(row: ClusterNode) -> Node:
    return Node(
        name=row.name,
        accelerators=row.accelerators,
        domains=_tiers(row.domains),
        islands={int(index): name for index, name in row.islands.items()},
        accelerator=row.accelerator,
        alive=row.alive,
        schedulable=row.schedulable,
        cpus=row.cpus,
        **_detailed(row.details),
    )


def _details(node: Node) -> dict[str, Any]:
    """JSON of what few nodes have; without what this one has not."""
    found: dict[str, Any] = {
        "suspect": node.suspect,
        "rails": {str(index): list(adapters) for index, adapters in sorted(node.rails.items())},
        "weak_pairs": [list(pair) for pair in sorted(node.weak_pairs)],
        "partitioned": sorted(node.partitioned),
    }
    return {name: value for name, value in found.items() if value}


def _detailed(details: Mapping[str, Any]) -> dict[str, Any]:
    """The same as arguments of a node."""
    return {
        "suspect": details.get("suspect", False),
        "rails": {int(index): tuple(adapters) for index, adapters in details.get("rails", {}).items()},
        "weak_pairs": frozenset((a, b) for a, b in details.get("weak_pairs", [])),
        "partitioned": frozenset(details.get("partitioned", [])),
    }


def _tiers(stored: Mapping[str, str]) -> dict[Tier, str]:
    """A tier that a newer version wrote is unknown here, and unknown never matches."""
    return {Tier(tier): name for tier, name in stored.items() if tier in _TIERS}


_TIERS = frozenset(tier.value for tier in Tier)


def _domains(node: Node) -> dict[str, Any]:
    return {tier.value: name for tier, name in node.domains.items()}


def _islands(node: Node) -> dict[str, Any]:
    return {str(index): name for index, name in node.islands.items()}
