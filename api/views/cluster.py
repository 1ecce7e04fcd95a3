"""The cluster as the controller last saw it, with who holds what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from api.schemas.cluster import ClusterView, CordonView, LinkView, NodeView, SlotView
from orchestrator.placement.room import Holding, free_room
from orchestrator.spec.sections import Tier
from orchestrator.store import cordons, leases, links, nodes, placements
from orchestrator.store.tables import ClusterNode, NodeCordon
from orchestrator.topology.fabric import Slot

Holders = Mapping[Slot, tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class SlotCount:
    total: int
    free: int


def cluster_view(session: Session, *, now: datetime) -> ClusterView:
    rows = nodes.every(session)
    held = placements.holders(session)
    counted = _count(rows, held)
    cordoned = cordons.by_node(session)
    lease = leases.current(session)
    is_up = lease is not None and lease.is_held(now)
    problems = []
    if not is_up:
        problems.append("No controller has renewed its lease: running jobs go on, nothing new starts.")
    reachable = is_up and lease is not None and bool(lease.cluster_reachable)
    if is_up and lease is not None and not reachable:
        problems.append(lease.cluster_message or "The controller has not reached the Ray cluster yet.")
    elif lease is not None and reachable:
        problems.extend(lease.cluster_message.splitlines())
    problems.extend(_lost_sentence(row, held) for row in rows if not row.alive)
    return ClusterView(
        nodes=[_node_view(row, held, cordoned.get(row.name)) for row in rows],
        links={tier.value: LinkView(**asdict(link)) for tier, link in links.known(session).items()},
        total_slots=counted.total,
        free_slots=counted.free,
        controller="up" if is_up else "down",
        cluster="up" if reachable else "down",
        problems=problems,
    )


def count_slots(session: Session) -> SlotCount:
    return _count(nodes.every(session), placements.holders(session))


def _slots(row: ClusterNode) -> list[Slot]:
    return [Slot(row.name, index) for index in range(row.accelerators)]


def _count(rows: Sequence[ClusterNode], held: Holders) -> SlotCount:
    """Slots of living nodes; free ones are on schedulable nodes only."""
    room = free_room(nodes.fabric_of(rows), [Holding(tuple(held), 0.0)])
    return SlotCount(total=sum(row.accelerators for row in rows if row.alive), free=len(room.slots))


def _lost_sentence(row: ClusterNode, held: Holders) -> str:
    used = sum(slot in held for slot in _slots(row))
    return f"Node {row.name} is lost." + (f" {used} of its slots are still held by jobs." if used else "")


def cordon_view(row: NodeCordon) -> CordonView:
    return CordonView(at=row.at, who=row.who, reason=row.reason)


def _node_view(row: ClusterNode, held: Holders, cordon: NodeCordon | None) -> NodeView:
    views = []
    for slot in _slots(row):
        job_id, job_name, rank = held.get(slot, (None, None, None))
        views.append(SlotView(index=slot.index, job_id=job_id, job_name=job_name, rank=rank))
    return NodeView(
        name=row.name,
        alive=row.alive,
        schedulable=row.schedulable,
        cordon=None if cordon is None else cordon_view(cordon),
        island=row.domains.get(Tier.ISLAND.value),
        leaf=row.domains.get(Tier.LEAF.value),
        spine=row.domains.get(Tier.SPINE.value),
        core=row.domains.get(Tier.CORE.value),
        accelerator=row.accelerator,
        islands=row.islands,
        cpus=row.cpus,
        suspect=row.details.get("suspect", False),
        rails=row.details.get("rails", {}),
        weak_pairs=row.details.get("weak_pairs", []),
        partitioned=row.details.get("partitioned", []),
        slots=views,
        last_seen=row.last_seen,
    )
