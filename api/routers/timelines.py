"""Timelines of a job: which are kept, and one of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.dependencies import LARGEST_ID, DatabaseOf, JobId
from api.problems import ProblemError, answers
from api.schemas.timelines import TimelineList, TimelineSummary, TimelineView
from orchestrator.lifecycle.timeline import Timeline
from orchestrator.store import jobs, timelines
from orchestrator.store.tables import StepTimeline

router = APIRouter(prefix="/api/v1/jobs/{job_id}", tags=["history"])


@router.get("/timelines", operation_id="listTimelines", responses=answers(404, 422, 503))
def list_timelines(job_id: JobId, database: DatabaseOf) -> TimelineList:
    """Steps whose schedule is kept as it ran, newest first."""
    with database.read() as session:
        jobs.get(session, job_id)
        return TimelineList(items=[_summary(row) for row in timelines.of_job(session, job_id)])


@router.get("/timeline", operation_id="getTimeline", responses=answers(404, 422, 503))
def get_timeline(
    job_id: JobId,
    database: DatabaseOf,
    step: Annotated[
        int | None, Query(ge=1, le=LARGEST_ID, description="Step; left out: the newest one kept.")
    ] = None,
    attempt: Annotated[
        int | None,
        Query(ge=1, le=LARGEST_ID, description="Attempt; left out: the newest one that has the step."),
    ] = None,
) -> TimelineView:
    """The schedule of one step as one pipeline ran it: which micro-batch, forward or backward, when."""
    with database.read() as session:
        jobs.get(session, job_id)
        row = timelines.get(session, job_id, step=step, attempt=attempt)
        if row is None:
            raise _none_kept(step, attempt, [kept.step for kept in timelines.of_job(session, job_id)])
        timeline = Timeline.model_validate(row.data)
        return TimelineView(
            **_summary(row).model_dump(),
            **timeline.model_dump(include=_SHOWN),
            ranks=timeline.ranks,
        )


_SHOWN = {"schedule", "pp", "microbatches", "virtual_stages", "clock_error_us", "window_us"}


def _summary(row: StepTimeline) -> TimelineSummary:
    return TimelineSummary(
        attempt=row.attempt, step=row.step, at=row.at, bubble=row.bubble, theory=row.theory
    )


def _none_kept(step: int | None, attempt: int | None, kept: list[int]) -> ProblemError:
    what = "No timeline" if step is None else f"No timeline of step {step}"
    of = "" if attempt is None else f" in attempt {attempt}"
    has = f"kept are those of steps {', '.join(map(str, sorted(set(kept))))}" if kept else "there is none yet"
    return ProblemError(404, "no-such-timeline", f"{what} is kept{of}; {has}.")
