"""The queue, as the body of an answer."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from sqlalchemy.orm import Session

from api.schemas.queue import ProjectView, QueuedJobView, QueuePolicyView, QueueView, ReservationView
from orchestrator.lifecycle.queueing import Past
from orchestrator.lifecycle.standing import WaitingJob, standing
from orchestrator.lifecycle.view import read_jobs
from orchestrator.queue.policy import QueuePolicy
from orchestrator.store import leases, placements


def queue_view(session: Session, *, after: int, limit: int, now: datetime) -> QueueView:
    """`limit` jobs at most, from the one behind position `after` on."""
    lease = leases.current(session)
    told = lease.queue if lease is not None else None
    policy = QueuePolicy() if told is None else QueuePolicy.model_validate(told["policy"])
    views = read_jobs(session)
    held_s = placements.held_before(session, [view.id for view in views if view.incarnation > 0])
    past = Past(held_s, {} if told is None else told["use"])
    found = standing(views, past, policy, now_s=now.timestamp())
    shares = {project.name: project.share for project in found.projects}
    page = list(enumerate(found.jobs, start=1))[after : after + limit]
    return QueueView(
        items=[_job_view(position, job, shares[job.view.project]) for position, job in page],
        total=len(found.jobs),
        projects=[ProjectView(**asdict(project)) for project in found.projects],
        policy=None if told is None else _policy_view(policy),
    )


def _policy_view(policy: QueuePolicy) -> QueuePolicyView:
    return QueuePolicyView.model_validate(
        {name: getattr(policy, name) for name in QueuePolicyView.model_fields}
    )


def _job_view(position: int, job: WaitingJob, share: float) -> QueuedJobView:
    view = job.view
    return QueuedJobView(
        position=position,
        id=view.id,
        name=view.name,
        project=view.project,
        priority=view.priority,
        world_size=view.size,
        state=view.state,
        reason=view.reason,
        message=view.message,
        share=share,
        created_at=view.created_at,
        waited_s=job.waited_s,
        starved=job.starved,
        reservation=None if view.reservation is None else ReservationView.model_validate(view.reservation),
    )
