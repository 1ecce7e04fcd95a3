"""Jobs: submitting, listing, cancelling, and the controller's changes of state."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import uuid6
from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState, Reason, end_state
from orchestrator.placement.explain import plan_label
from orchestrator.spec.job import JobSpec
from orchestrator.store import events
from orchestrator.store.errors import (
    IdempotencyConflictError,
    InvalidCursorError,
    JobAlreadyEndedError,
    JobNotFoundError,
)
from orchestrator.store.tables import Job

LIVE_STATES: tuple[str, ...] = tuple(state.value for state in JobState if not state.is_terminal)


@dataclass(frozen=True, slots=True)
class Inserted:
    job: Job
    created: bool
    """False when the Idempotency-Key had been used with the same job file: `job` is the one of then."""


@dataclass(frozen=True, slots=True)
class JobSlice:
    items: Sequence[Job]
    next_cursor: str | None


def fingerprint(spec: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a spec."""
    canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def insert(session: Session, spec: JobSpec, *, now: datetime, idempotency_key: str | None = None) -> Inserted:
    """A new queued job with its event `submitted`; or the job that the same key and job file made before.

    IdempotencyConflictError when the key was used with another job file.
    """
    document = spec.model_dump(mode="json")
    mark = fingerprint(document)
    if idempotency_key is not None and (earlier := _by_key(session, idempotency_key)) is not None:
        return _same_or_conflict(earlier, idempotency_key, mark)
    job = Job(
        id=str(uuid6.uuid7()),
        name=spec.name,
        state=JobState.QUEUED.value,
        reason=Reason.WAITING_FOR_CONTROLLER.value,
        message="Submitted; no controller has looked at it yet.",
        project=spec.queue.project,
        priority=spec.queue.priority,
        world_size=spec.parallelism.world_size,
        plan=plan_label(spec.parallelism),
        total_steps=spec.training.steps,
        created_at=now,
        idempotency_key=idempotency_key,
        fingerprint=mark,
        spec=document,
    )
    try:
        with session.begin_nested():
            session.add(job)
    except IntegrityError:
        # PostgreSQL: another transaction took the key since we looked. Ids are random: it is the key.
        earlier = _by_key(session, idempotency_key) if idempotency_key is not None else None
        if earlier is None or idempotency_key is None:
            raise
        return _same_or_conflict(earlier, idempotency_key, mark)
    events.append(session, job.id, EventKind.SUBMITTED, f"Job {job.name} was submitted.", at=now)
    session.refresh(job)
    return Inserted(job, created=True)


def _by_key(session: Session, key: str) -> Job | None:
    return session.scalars(select(Job).where(Job.idempotency_key == key)).one_or_none()


def _same_or_conflict(earlier: Job, key: str, mark: str) -> Inserted:
    if earlier.fingerprint != mark:
        raise IdempotencyConflictError(key, earlier.id)
    return Inserted(earlier, created=False)


def get(session: Session, job_id: str) -> Job:
    """JobNotFoundError when there is none."""
    job = session.get(Job, job_id) if is_job_id(job_id) else None
    if job is None:
        raise JobNotFoundError(job_id)
    return job


def is_job_id(text: str) -> bool:
    """Whether `text` is written as job ids are (canonical lower-case UUID)."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def page(
    session: Session,
    *,
    limit: int,
    cursor: str | None = None,
    states: Sequence[JobState] = (),
    name_contains: str | None = None,
) -> JobSlice:
    """Jobs, newest first, `limit` at most, without `spec`. InvalidCursorError for a cursor that no page gave.

    Pages are cut by key, not by offset: jobs that are added meanwhile neither shift nor double an entry.
    """
    query = select(Job).options(defer(Job.spec)).order_by(Job.id.desc()).limit(limit + 1)
    if cursor is not None:
        query = query.where(Job.id < _decode_cursor(cursor))
    if states:
        query = query.where(Job.state.in_([state.value for state in states]))
    if name_contains:
        query = query.where(Job.name.contains(name_contains.lower(), autoescape=True))
    found = session.scalars(query).all()
    items = found[:limit]
    return JobSlice(items, _encode_cursor(items[-1].id) if len(found) > limit and items else None)


def _encode_cursor(job_id: str) -> str:
    return base64.urlsafe_b64encode(b"j" + uuid.UUID(job_id).bytes).decode().rstrip("=")


def _decode_cursor(cursor: str) -> str:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidCursorError(cursor) from error
    if len(raw) != 17 or raw[:1] != b"j":
        raise InvalidCursorError(cursor)
    return str(uuid.UUID(bytes=raw[1:]))


def count_by_state(session: Session) -> dict[JobState, int]:
    """Number of jobs in each state, zeros included."""
    rows = session.execute(select(Job.state, func.count()).group_by(Job.state))
    counts: dict[str, int] = {row[0]: row[1] for row in rows}
    return {state: counts.get(state.value, 0) for state in JobState}


def live(session: Session) -> Sequence[Job]:
    """Every job that has not ended, without `spec`, oldest first: the order of the queue."""
    query = select(Job).options(defer(Job.spec)).where(Job.state.in_(LIVE_STATES)).order_by(Job.id)
    return session.scalars(query).all()


def lock(session: Session, job_id: str) -> Job:
    """The job as it is now; nobody else changes it until the transaction ends. JobNotFoundError."""
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None:
        raise JobNotFoundError(job_id)
    return job


def summaries(session: Session, job_ids: Sequence[str]) -> Sequence[Job]:
    """These jobs, ended or not, without `spec`."""
    if not job_ids:
        return []
    return session.scalars(select(Job).options(defer(Job.spec)).where(Job.id.in_(job_ids))).all()


def spec_of(session: Session, job_id: str) -> Mapping[str, Any]:
    """The stored job file, not validated: it may be older than the program."""
    found: Mapping[str, Any] | None = session.scalar(select(Job.spec).where(Job.id == job_id))
    if found is None:
        raise JobNotFoundError(job_id)
    return found


def mark_unreachable(session: Session, message: str) -> None:
    """Every job that has not ended is shown as cut off from the cluster; states stay as they are."""
    session.execute(
        update(Job)
        .where(Job.state.in_(LIVE_STATES), Job.reason != Reason.CLUSTER_UNREACHABLE.value)
        .values(reason=Reason.CLUSTER_UNREACHABLE.value, message=message)
    )


def request_cancel(session: Session, job_id: str, *, now: datetime) -> Job:
    """Asks for the job's end; the controller carries it out. Asking again changes nothing.

    JobNotFoundError; JobAlreadyEndedError for a job that has ended otherwise than by a cancel.
    """
    job = session.get(Job, job_id, with_for_update=True) if is_job_id(job_id) else None
    if job is None:
        raise JobNotFoundError(job_id)
    if end_state(job.state) not in (None, JobState.CANCELLED):
        raise JobAlreadyEndedError(job_id, job.state)
    if job.cancel_requested_at is None:
        job.cancel_requested_at = now
        session.flush()
        sentence = "A user asked for the job to be cancelled."
        events.append(session, job_id, EventKind.CANCEL_REQUESTED, sentence, at=now)
        session.refresh(job)
    return job


def set_state(
    session: Session, job_id: str, state: JobState, reason: Reason, message: str, *, now: datetime
) -> bool:
    """Moves a job that has not ended; event when the state differs. False when it had ended already.

    `started_at` is set by the first `running`, `finished_at` by a terminal state.
    """
    job = session.get(Job, job_id, with_for_update=True, populate_existing=True)
    if job is None or end_state(job.state) is not None:
        return False
    before = job.state
    job.state, job.reason, job.message = state.value, reason.value, message
    if state is JobState.RUNNING and job.started_at is None:
        job.started_at = now
    if state.is_terminal:
        job.finished_at = now
    session.flush()
    if before != state.value:
        data = {"from": before, "to": state.value, "reason": reason.value}
        sentence = f"{before} -> {state.value}" + (f": {_first_line(message)}" if message else "")
        events.append(session, job_id, EventKind.STATE_CHANGED, sentence, at=now, data=data)
    return True


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0] if message.strip() else ""


def summarise(session: Session, job_id: str, values: Mapping[str, Any]) -> None:
    """Sets summary columns: step, loss, tokens_per_s, restarts, evaluation, deaths_*, incarnation, reservation."""
    if values:
        session.execute(update(Job).where(Job.id == job_id).values(**values))
