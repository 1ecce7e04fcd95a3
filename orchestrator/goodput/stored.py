"""Histories for the ledger, from SQL: events that move a job from one period to another, sums over its finished steps,
and what its placements held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, func, select, type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from orchestrator.goodput.ledger import History, Holding
from orchestrator.goodput.periods import ENDS, FAULTS, GOES_ON, MARKS, Moment
from orchestrator.goodput.stretch import Stretch, lost_from, stretches
from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState, end_state
from orchestrator.store import stretches as stored_stretches
from orchestrator.store.checkpoints import CheckpointState
from orchestrator.store.stretches import microseconds
from orchestrator.store.tables import Checkpoint, Event, Job, Placement

JOBS = 500
"""Read in one go."""
TOLD = (
    *FAULTS | GOES_ON | ENDS | frozenset(MARKS),
    EventKind.PLACED,
    EventKind.RESUMED,
    EventKind.TRAINING_STARTED,
)


def history_of(session: Session, job: Job, *, now: datetime) -> History:
    """Up to the job's end, or to `now`."""
    return next(histories(session, [job], now=now))


def histories(session: Session, jobs: Sequence[Job], *, now: datetime) -> Iterator[History]:
    """Of each job, in their order. Reads some rows a job and one for 64 of its finished steps."""
    for begin in range(0, len(jobs), JOBS):
        some = jobs[begin : begin + JOBS]
        ids = [job.id for job in some]
        moments, held = _moments(session, ids), _holdings(session, ids, now)
        kept, found = _kept(session, ids), stored_stretches.of_jobs(session, ids)
        for job in some:
            yield _history(
                session,
                job,
                moments.get(job.id, []),
                found.get(job.id, []),
                held.get(job.id, []),
                kept.get(job.id, 0),
                now,
            )


def _history(
    session: Session,
    job: Job,
    moments: Sequence[Moment],
    found: Sequence[Stretch],
    held: Sequence[tuple[int, int, int]],
    checkpoint: int,
    now: datetime,
) -> History:
    submitted = microseconds(job.created_at)
    ended = end_state(job.state)
    kept = _resumed_from(moments, found)
    if ended is not None and ended is not JobState.SUCCEEDED:
        kept = checkpoint
    return History(
        submitted_us=submitted,
        until_us=max(submitted, microseconds(job.finished_at or now)),
        over=ended is not None,
        asked=job.world_size,
        moments=moments,
        stretches=_cut(session, job.id, found, kept),
        holdings=[
            Holding(start, end, min(gpus, job.world_size), max(0, gpus - job.world_size))
            for start, end, gpus in held
        ],
        kept=kept,
    )


def _resumed_from(moments: Sequence[Moment], found: Sequence[Stretch]) -> int | None:
    """Step that the newest attempt went back to, while it has not finished one."""
    newest = found[-1].attempt if found else 0
    for moment in reversed(moments):
        if moment.kind is EventKind.RESUMED and (moment.attempt or 0) > newest:
            return moment.step
    return None


def _cut(session: Session, job_id: str, found: Sequence[Stretch], kept: int | None) -> list[Stretch]:
    """Stretches of which the whole is kept or lost: those of which a part is are read step by step."""
    cut: list[Stretch] = []
    for stretch, bound in zip(found, lost_from(found, kept), strict=True):
        if stretch.first_step < bound <= stretch.last_step:
            steps = list(stored_stretches.steps(session, job_id, stretch.first_id, stretch.last_id))
            cut += stretches(step for step in steps if step.first_step < bound)
            cut += stretches(step for step in steps if step.first_step >= bound)
        else:
            cut.append(stretch)
    return cut


def _moments(session: Session, job_ids: Sequence[str]) -> dict[str, list[Moment]]:
    """By job. Of an event's data only what is needed: that of a hang has the stacks of all ranks."""
    data = type_coerce(Event.data, JSON().with_variant(JSONB(), "postgresql"))
    said = [data[key].as_string() for key in ("step", "outcome", "rung")]
    query = (
        select(Event.job_id, Event.at, Event.kind, Event.attempt, Event.message, *said)
        .where(Event.job_id.in_(job_ids), Event.kind.in_([kind.value for kind in TOLD]))
        .order_by(Event.job_id, Event.id)
    )
    found: dict[str, list[Moment]] = {}
    for job_id, at, kind, attempt, message, step, outcome, rung in session.execute(query):
        moment = Moment(microseconds(at), EventKind(kind), attempt, _whole(step), outcome, rung, message)
        found.setdefault(job_id, []).append(moment)
    return found


def _whole(text: Any) -> int | None:
    """SQLite gives a number of JSON as a number, whatever it is asked for."""
    return int(text) if str(text).isdecimal() else None


def _holdings(
    session: Session, job_ids: Sequence[str], now: datetime
) -> dict[str, list[tuple[int, int, int]]]:
    """By job (begin, end, GPUs) of each placement, oldest first; of one that dropped replicas, each part of it."""
    is_postgresql = session.get_bind().dialect.name == "postgresql"
    size = func.jsonb_array_length if is_postgresql else func.json_array_length
    columns = (Placement.job_id, Placement.placed_at, Placement.released_at, size(Placement.slots))
    query = select(*columns).where(Placement.job_id.in_(job_ids))
    changes = _changes(session, job_ids)
    found: dict[str, list[tuple[int, int, int]]] = {}
    for job_id, placed_at, released_at, gpus in session.execute(query.order_by(Placement.incarnation)):
        span = microseconds(placed_at), microseconds(released_at or now), gpus
        found.setdefault(job_id, []).extend(_parts(span, changes.get(job_id, ())))
    return found


def _changes(session: Session, job_ids: Sequence[str]) -> dict[str, list[tuple[int, int, int]]]:
    """By job (time, GPUs before, GPUs after) of each change of a placement while it ran, oldest first."""
    data = type_coerce(Event.data, JSON().with_variant(JSONB(), "postgresql"))
    query = (
        select(Event.job_id, Event.at, data["gpus_before"].as_integer(), data["gpus"].as_integer())
        .where(Event.job_id.in_(job_ids), Event.kind == EventKind.MOVED.value)
        .order_by(Event.job_id, Event.id)
    )
    found: dict[str, list[tuple[int, int, int]]] = {}
    for job_id, at, before, after in session.execute(query):
        found.setdefault(job_id, []).append((microseconds(at), before, after))
    return found


def _parts(
    span: tuple[int, int, int], changes: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int]]:
    """A placement of which the GPUs at its end are known, cut where their number changed."""
    begin, end, gpus = span
    for at, before, after in changes:
        if begin < at < end and before != after:
            yield begin, at, before
            begin = at
    yield begin, end, gpus


def _kept(session: Session, job_ids: Sequence[str]) -> dict[str, int]:
    """By job the newest step of which there is a checkpoint."""
    query = (
        select(Checkpoint.job_id, func.max(Checkpoint.step))
        .where(Checkpoint.job_id.in_(job_ids), Checkpoint.state != CheckpointState.DAMAGED.value)
        .group_by(Checkpoint.job_id)
    )
    return {job_id: step for job_id, step in session.execute(query)}  # noqa: C416 - rows are no pairs to mypy
