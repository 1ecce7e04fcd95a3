"""Timelines of a job: the newest few, so that no run fills the store, however long it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import structlog
from pydantic import ValidationError
from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session, defer

from orchestrator.estimate.pipeline import bubble
from orchestrator.lifecycle.reports import GangEvent
from orchestrator.lifecycle.timeline import TIMELINES_KEPT, Timeline
from orchestrator.store.tables import StepTimeline

log = structlog.get_logger(__name__)


def keep(session: Session, job_id: str, told: Sequence[GangEvent]) -> None:
    """Stores the newest of `told` and forgets what is older than the newest TIMELINES_KEPT of the job.

    An event without data is one whose timeline gave way in the supervisor; one that is no timeline is logged.
    """
    stored = [_store(session, job_id, event) for event in told[-TIMELINES_KEPT:] if event.data]
    if not any(stored):
        return
    session.flush()
    order = (StepTimeline.attempt.desc(), StepTimeline.step.desc())
    keys = select(StepTimeline.attempt, StepTimeline.step).where(StepTimeline.job_id == job_id)
    old = [(attempt, step) for attempt, step in session.execute(keys.order_by(*order).offset(TIMELINES_KEPT))]
    if old:
        mine = StepTimeline.job_id == job_id
        found = tuple_(StepTimeline.attempt, StepTimeline.step).in_(old)
        session.execute(delete(StepTimeline).where(mine, found).execution_options(synchronize_session=False))


def _store(session: Session, job_id: str, event: GangEvent) -> bool:
    try:
        timeline = Timeline.model_validate(event.data)
    except ValidationError as error:
        first = error.errors()[0]
        log.warning("not-a-timeline", job_id=job_id, field=first["loc"], message=first["msg"])
        return False
    theory = bubble(
        timeline.schedule,
        pp=timeline.pp,
        microbatches=timeline.microbatches,
        virtual_stages=timeline.virtual_stages,
    )
    session.merge(
        StepTimeline(
            job_id=job_id,
            attempt=event.attempt,
            step=timeline.step,
            at=datetime.fromtimestamp(event.at, UTC),
            bubble=timeline.bubble,
            theory=theory,
            data=timeline.model_dump(mode="json"),
        )
    )
    return True


def of_job(session: Session, job_id: str) -> Sequence[StepTimeline]:
    """Newest first, without their data."""
    query = select(StepTimeline).options(defer(StepTimeline.data)).where(StepTimeline.job_id == job_id)
    return session.scalars(query.order_by(StepTimeline.attempt.desc(), StepTimeline.step.desc())).all()


def get(
    session: Session, job_id: str, *, step: int | None = None, attempt: int | None = None
) -> StepTimeline | None:
    """The timeline of a step, of the newest step when that is None, in the newest attempt that has one."""
    query = select(StepTimeline).where(StepTimeline.job_id == job_id)
    if step is not None:
        query = query.where(StepTimeline.step == step)
    if attempt is not None:
        query = query.where(StepTimeline.attempt == attempt)
    newest = query.order_by(StepTimeline.attempt.desc(), StepTimeline.step.desc()).limit(1)
    return session.scalars(newest).one_or_none()
