"""What the reconciler knows of a job when it decides: values, read in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from orchestrator.lifecycle.ports import GangRef
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.room import Holding
from orchestrator.store import jobs, placements
from orchestrator.store.tables import Job, Placement
from orchestrator.topology.fabric import Slot


@dataclass(frozen=True, slots=True)
class GangView:
    """A placement that still holds its slots."""

    incarnation: int
    slots: tuple[Slot, ...]
    cpus_per_rank: float
    started: bool
    """True once the launcher is known to have started its supervisor."""
    ended: bool
    """Its supervisor is over: what is left is reaped."""
    certified: bool
    ranks: Sequence[Mapping[str, Any]]
    event_cursor: int
    step_cursor: int
    placed_at: datetime
    vacate_reason: Reason | None
    """Why the queue wants its slots back; None: it may stay."""
    vacate_message: str
    revision: int = 0
    """Changes of the placement so far."""
    leaving: tuple[Slot, ...] = ()
    """Slots that its newest change gives back, still held."""
    replicas: int | None = None
    """Data replicas it runs with since some were dropped."""

    @property
    def held(self) -> tuple[Slot, ...]:
        return (*self.slots, *self.leaving)


@dataclass(frozen=True, slots=True)
class JobView:
    id: str
    name: str
    state: JobState
    reason: Reason
    message: str
    cancel_requested: bool
    step: int
    restarts: int
    deaths_at_step: tuple[int, int]
    incarnation: int
    project: str
    priority: int
    size: int
    """Accelerators it asks for."""
    created_at: datetime
    reservation: Mapping[str, Any] | None
    """What is kept for it, as `Job.reservation` has it."""
    gang: GangView | None
    """None: nothing of it is on the cluster."""
    spent: Mapping[str, int] = field(default_factory=dict)
    """What is used of the budgets of repair (`recovery.ladder.History.carried`)."""

    def gang_ref(self) -> GangRef:
        assert self.gang is not None
        return GangRef(self.id, self.gang.incarnation)

    @property
    def leaves(self) -> bool:
        """Its slots are free soon: it has ended, or was asked to."""
        assert self.gang is not None
        asked = self.cancel_requested or self.gang.vacate_reason is not None
        return asked or self.gang.ended or self.state.is_terminal

    @property
    def waits_for_placement(self) -> bool:
        return self.gang is None and self.state in (JobState.QUEUED, JobState.RECOVERING)


def read_jobs(session: Session) -> list[JobView]:
    """Every job that has not ended or still holds slots, oldest first: the order of the queue."""
    gangs = {row.job_id: row for row in placements.unreleased(session)}
    rows = {row.id: row for row in jobs.live(session)}
    ended = [job_id for job_id in gangs if job_id not in rows]
    rows |= {row.id: row for row in jobs.summaries(session, ended)}
    return [view_of(rows[job_id], gangs.get(job_id)) for job_id in sorted(rows)]


def read_job(session: Session, job_id: str) -> JobView:
    job = jobs.summaries(session, [job_id])[0]
    return view_of(job, placements.unreleased_of(session, job_id))


def view_of(job: Job, placement: Placement | None) -> JobView:
    return JobView(
        id=job.id,
        name=job.name,
        state=JobState(job.state),
        reason=Reason(job.reason),
        message=job.message,
        cancel_requested=job.cancel_requested_at is not None,
        step=job.step,
        restarts=job.restarts,
        deaths_at_step=(job.deaths_step, job.deaths_count),
        incarnation=job.incarnation,
        project=job.project,
        priority=job.priority,
        size=job.world_size,
        created_at=job.created_at,
        reservation=job.reservation,
        gang=None if placement is None else _gang(placement),
        spent=job.spent,
    )


def _gang(row: Placement) -> GangView:
    return GangView(
        incarnation=row.incarnation,
        slots=placements.slots_of(row),
        cpus_per_rank=row.cpus_per_rank,
        started=row.started_at is not None,
        ended=row.ended_at is not None,
        certified=row.certified,
        ranks=row.ranks,
        event_cursor=row.event_cursor,
        step_cursor=row.step_cursor,
        placed_at=row.placed_at,
        vacate_reason=None if row.vacate_reason is None else Reason(row.vacate_reason),
        vacate_message=row.vacate_message,
        revision=row.revision,
        leaving=placements.leaving_of(row),
        replicas=row.replicas,
    )


def holdings_of(views: Sequence[JobView]) -> list[Holding]:
    return [Holding(view.gang.held, view.gang.cpus_per_rank) for view in views if view.gang is not None]
