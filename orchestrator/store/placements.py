"""Placements: the ledger of who holds which slot, and how far each supervisor has been drained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from orchestrator.lifecycle.reports import RankFacts
from orchestrator.lifecycle.states import Reason
from orchestrator.placement.placement import Placement as Decided
from orchestrator.placement.report import axis_report
from orchestrator.placement.room import Holding
from orchestrator.queue.use import Span
from orchestrator.store.nodes import node_from_json, node_to_json
from orchestrator.store.tables import Job, Placement
from orchestrator.topology.fabric import Fabric, Node, Slot


def insert(
    session: Session,
    job_id: str,
    incarnation: int,
    decided: Decided,
    fabric: Fabric,
    *,
    first_attempt: int,
    restarts_used: int,
    deaths_at_step: tuple[int, int],
    now: datetime,
    spent: Mapping[str, int] | None = None,
) -> Placement:
    """Stores a placement with the nodes it lies on. Its slots are taken from the commit on."""
    used = {slot.node for slot in decided.slots}
    row = Placement(
        job_id=job_id,
        incarnation=incarnation,
        slots=[[slot.node, slot.index] for slot in decided.slots],
        nodes=[node_to_json(node) for node in fabric.nodes if node.name in used],
        axes=[axis_report(axis) for axis in decided.axes],
        explanation=list(decided.explanation),
        ranks=[],
        cpus_per_rank=decided.cpus_per_rank,
        first_attempt=first_attempt,
        restarts_used=restarts_used,
        deaths_step=deaths_at_step[0],
        deaths_count=deaths_at_step[1],
        spent=dict(spent or {}),
        placed_at=now,
    )
    session.add(row)
    session.flush()
    return row


def facts_to_json(facts: RankFacts) -> dict[str, Any]:
    return {**asdict(facts), "labels": dict(facts.labels)}


def slots_of(row: Placement) -> tuple[Slot, ...]:
    """Slot of each rank, by rank."""
    return tuple(Slot(node, index) for node, index in row.slots)


def held_by(row: Placement) -> tuple[Slot, ...]:
    """Every slot it holds: its ranks', and those that it gives back but has not yet."""
    return (*slots_of(row), *leaving_of(row))


def leaving_of(row: Placement) -> tuple[Slot, ...]:
    return tuple(Slot(node, index) for node, index in row.leaving)


def taken(session: Session, slots: Iterable[Slot], *, but: str, moved_only: bool = False) -> frozenset[Slot]:
    """Which of `slots` a job other than `but` holds; `moved_only`: by a placement that has changed.

    Asked in the transaction that gives slots out, so that none is given twice, whatever was decided meanwhile.
    """
    query = select(Placement.slots, Placement.leaving).where(
        Placement.released_at.is_(None), Placement.job_id != but
    )
    if moved_only:
        query = query.where(Placement.revision > 0)
    held = {Slot(node, index) for own, leaving in session.execute(query) for node, index in (*own, *leaving)}
    return frozenset(held.intersection(slots))


def move(
    session: Session,
    job_id: str,
    incarnation: int,
    decided: Decided,
    nodes: Iterable[Node],
    *,
    revision: int,
    leaving: Iterable[Slot],
    replicas: int | None,
) -> None:
    """Puts `decided` in the place of what was placed, as change number `revision`. No rank has been seen there yet, so
    the placement is not proved until it is certified again."""
    values = {
        "slots": [[slot.node, slot.index] for slot in decided.slots],
        "nodes": [node_to_json(node) for node in nodes],
        "axes": [axis_report(axis) for axis in decided.axes],
        "explanation": list(decided.explanation),
        "ranks": [],
        "certified": False,
        "revision": revision,
        "leaving": [[slot.node, slot.index] for slot in leaving],
        "replicas": replicas,
    }
    _set(session, job_id, incarnation, values)


def left(session: Session, job_id: str, incarnation: int) -> None:
    """Nothing runs any more on the slots that its newest change gave back: they are free."""
    _set(session, job_id, incarnation, {"leaving": []})


def nodes_of(row: Placement) -> tuple[Node, ...]:
    """The nodes it lies on, as they were when it was made."""
    return tuple(node_from_json(document) for document in row.nodes)


def get(session: Session, job_id: str, incarnation: int) -> Placement:
    return session.get_one(Placement, (job_id, incarnation))


def newest(session: Session, job_id: str) -> Placement | None:
    """The placement of the job's newest incarnation, released or not."""
    query = select(Placement).where(Placement.job_id == job_id).order_by(Placement.incarnation.desc())
    return session.scalars(query.limit(1)).one_or_none()


def unreleased(session: Session) -> Sequence[Placement]:
    """Every placement that still holds its slots, oldest first."""
    query = select(Placement).where(Placement.released_at.is_(None)).order_by(Placement.placed_at)
    return session.scalars(query).all()


def unreleased_of(session: Session, job_id: str) -> Placement | None:
    """The job's placement that still holds slots; there is one at most."""
    query = select(Placement).where(Placement.job_id == job_id, Placement.released_at.is_(None))
    return session.scalars(query).one_or_none()


def unreleased_keys(session: Session) -> frozenset[tuple[str, int]]:
    """(job id, incarnation) of every placement that still holds its slots."""
    query = select(Placement.job_id, Placement.incarnation).where(Placement.released_at.is_(None))
    return frozenset((job_id, incarnation) for job_id, incarnation in session.execute(query))


def holding_jobs(session: Session) -> Sequence[str]:
    """Ids of jobs that hold slots, oldest first."""
    return sorted(job_id for job_id, _ in unreleased_keys(session))


def holders(session: Session) -> Mapping[Slot, tuple[str, str, int]]:
    """Who holds each slot: (job id, job name, rank)."""
    query = (
        select(Placement.slots, Job.id, Job.name)
        .join(Job, Job.id == Placement.job_id)
        .where(Placement.released_at.is_(None))
    )
    held: dict[Slot, tuple[str, str, int]] = {}
    for slots, job_id, name in session.execute(query):
        for rank, (node, index) in enumerate(slots):
            held[Slot(node, index)] = (job_id, name, rank)
    return held


def holdings(session: Session) -> Sequence[Holding]:
    """What every placement that is not released holds."""
    return [Holding(held_by(row), row.cpus_per_rank) for row in unreleased(session)]


def ask_to_vacate(session: Session, job_id: str, incarnation: int, reason: Reason, message: str) -> None:
    """The queue wants its slots back: its supervisor is asked to save a checkpoint and end."""
    _set(session, job_id, incarnation, {"vacate_reason": reason.value, "vacate_message": message})


def held_before(session: Session, job_ids: Sequence[str]) -> Mapping[str, float]:
    """Seconds for which each of these jobs held slots in placements that are released; of those that have one."""
    held: dict[str, float] = {}
    query = select(Placement.job_id, Placement.placed_at, Placement.released_at)
    if not job_ids:
        return held
    for job_id, placed_at, released_at in session.execute(
        query.where(Placement.job_id.in_(job_ids), Placement.released_at.is_not(None))
    ):
        assert released_at is not None
        held[job_id] = held.get(job_id, 0.0) + (released_at - placed_at).total_seconds()
    return held


def spans_since(session: Session, since: datetime, *, now: datetime) -> list[Span]:
    """What every project held, and when: placements that were not released before `since`."""
    query = select(Job.project, Job.world_size, Placement.placed_at, Placement.released_at)
    rows = session.execute(
        query.join(Job, Job.id == Placement.job_id).where(
            or_(Placement.released_at.is_(None), Placement.released_at > since)
        )
    )
    return [
        Span(project, size, placed_at.timestamp(), (released_at or now).timestamp())
        for project, size, placed_at, released_at in rows
    ]


def advance(
    session: Session, job_id: str, incarnation: int, *, seen: tuple[int, int], reached: tuple[int, int]
) -> bool:
    """Moves the cursors (events, steps) from `seen` to `reached`. False when they are not at `seen`."""
    moved = session.execute(
        update(Placement)
        .where(Placement.job_id == job_id, Placement.incarnation == incarnation)
        .where(Placement.event_cursor == seen[0], Placement.step_cursor == seen[1])
        .values(event_cursor=reached[0], step_cursor=reached[1])
    )
    return bool(moved.rowcount)  # type: ignore[attr-defined]


def certify(session: Session, job_id: str, incarnation: int, ranks: Sequence[RankFacts]) -> None:
    """What the running ranks said of themselves; the placement is proved from here on."""
    documents = [facts_to_json(facts) for facts in ranks]
    _set(session, job_id, incarnation, {"ranks": documents, "certified": True})


def started(session: Session, job_id: str, incarnation: int, *, now: datetime) -> None:
    """Its supervisor has been started: from now on its absence means that it died."""
    _set(session, job_id, incarnation, {"started_at": now})


def end(session: Session, job_id: str, incarnation: int, *, now: datetime) -> None:
    """Its supervisor is over: it is reaped from now on. The slots stay taken."""
    _set(session, job_id, incarnation, {"ended_at": now})


def release(session: Session, job_id: str, incarnation: int, *, now: datetime) -> None:
    """Nothing of it is left on the cluster: the slots are free."""
    _set(session, job_id, incarnation, {"released_at": now})


def _set(session: Session, job_id: str, incarnation: int, values: Mapping[str, Any]) -> None:
    where = (Placement.job_id == job_id, Placement.incarnation == incarnation)
    session.execute(update(Placement).where(*where).values(**values))
