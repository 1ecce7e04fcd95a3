"""Jobs and what hangs on them, as bodies of answers."""

from __future__ import annotations

from sqlalchemy.orm import Session

from api.schemas.jobs import (
    AttemptView,
    CheckpointView,
    Evaluation,
    EventView,
    JobDetail,
    JobSummary,
    MetricView,
    StepCost,
)
from api.views.placement import placement_view
from orchestrator.store import attempts, placements
from orchestrator.store.tables import Attempt, Checkpoint, Event, Job, Metric


def job_summary(job: Job) -> JobSummary:
    return JobSummary(
        id=job.id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        message=job.message,
        world_size=job.world_size,
        plan=job.plan,
        step=job.step,
        total_steps=job.total_steps,
        loss=job.loss,
        tokens_per_s=job.tokens_per_s,
        restarts=job.restarts,
        cancel_requested=job.cancel_requested_at is not None,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
    )


def job_detail(session: Session, job: Job) -> JobDetail:
    placed = placements.newest(session, job.id)
    return JobDetail(
        **job_summary(job).model_dump(),
        spec=job.spec,
        placement=None if placed is None else placement_view(job, placed),
        attempts=[attempt_view(row) for row in attempts.of_job(session, job.id)],
        evaluation=None if job.evaluation is None else _evaluation(job.evaluation),
    )


def _evaluation(stored: dict[str, object]) -> Evaluation | None:
    """None when a number in it was not finite, which the store keeps as null."""
    known = {name: stored.get(name) for name in Evaluation.model_fields}
    return None if None in known.values() else Evaluation.model_validate(known)


def attempt_view(row: Attempt) -> AttemptView:
    return AttemptView(
        number=row.number,
        incarnation=row.incarnation,
        started_at=row.started_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        start_step=row.start_step,
        end_step=row.end_step,
        message=row.message,
    )


def checkpoint_view(row: Checkpoint) -> CheckpointView:
    return CheckpointView(
        step=row.step,
        attempt=row.attempt,
        state=row.state,
        message=row.message,
        path=row.path,
        bytes=row.bytes,
        created_at=row.created_at,
    )


def event_view(row: Event) -> EventView:
    return EventView(
        id=row.id,
        at=row.at,
        kind=row.kind,
        attempt=row.attempt,
        message=row.message,
        data=row.data,
    )


def metric_view(row: Metric) -> MetricView:
    return MetricView(
        id=row.id,
        at=row.at,
        attempt=row.attempt,
        step=row.step,
        loss=row.loss,
        grad_norm=row.grad_norm,
        learning_rate=row.learning_rate,
        tokens=row.tokens,
        step_time_s=row.step_time_s,
        tokens_per_s=row.tokens_per_s,
        cost=None
        if row.cost is None
        else StepCost(**{name: row.cost.get(name) for name in StepCost.model_fields}),
    )
