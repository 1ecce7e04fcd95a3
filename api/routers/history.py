"""Events and metrics of a job: history by cursor, thinned curves, and live streams."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.responses import StreamingResponse

from api.dependencies import After, DatabaseOf, JobId, ResumeAfter
from api.events import Batch, StreamItem, event_stream, stream_answers, stream_slot
from api.problems import answers
from api.schemas.jobs import EventPage, EventView, MetricPage, MetricView
from api.views.jobs import event_view, metric_view
from orchestrator.lifecycle.states import JobState, end_state
from orchestrator.store import events, jobs, metrics
from orchestrator.store.engine import Database
from orchestrator.store.tables import Job, Metric

router = APIRouter(prefix="/api/v1/jobs/{job_id}", tags=["history"])

_STREAM_BATCH = 500
Limit = Annotated[int, Query(ge=1, le=1000, description="Items a page.")]


@router.get("/events", operation_id="listEvents", responses=answers(404, 422, 503))
def list_events(job_id: JobId, database: DatabaseOf, after: After = 0, limit: Limit = 200) -> EventPage:
    """Events of the job, oldest first."""
    with database.read() as session:
        jobs.get(session, job_id)
        rows = events.after(session, job_id, cursor=after, limit=limit + 1)
    more = len(rows) > limit
    return EventPage(
        items=[event_view(row) for row in rows[:limit]], next_cursor=rows[limit - 1].id if more else None
    )


@router.get("/metrics", operation_id="listMetrics", responses=answers(404, 422, 503))
def list_metrics(
    job_id: JobId,
    database: DatabaseOf,
    after: After = 0,
    limit: Limit = 1000,
    points: Annotated[
        int | None,
        Query(
            ge=2,
            le=5000,
            description="For charts: everything after `after` in at most this many points, evenly spaced, the newest "
            "included; `limit` is then ignored.",
        ),
    ] = None,
) -> MetricPage:
    """Finished steps, oldest first. A step that was trained again after a repair occurs once for each time."""
    with database.read() as session:
        job = jobs.get(session, job_id)
        if points is not None:
            thinned = _evenly(session, job, after=after, points=points)
            return MetricPage(items=[metric_view(row) for row in thinned], next_cursor=None)
        rows = metrics.after(session, job_id, cursor=after, limit=limit + 1)
    more = len(rows) > limit
    return MetricPage(
        items=[metric_view(row) for row in rows[:limit]], next_cursor=rows[limit - 1].id if more else None
    )


def _evenly(session: Session, job: Job, *, after: int, points: int) -> list[Metric]:
    """Every n-th row counted back from the newest; ids have no gaps within a job, so arithmetic finds them."""
    newest = job.last_metric_id
    stride = max(1, -(-(newest - after) // points))
    query = (
        select(Metric)
        .where(Metric.job_id == job.id, Metric.id > after, Metric.id <= newest)
        .where((newest - Metric.id) % stride == 0)
        .order_by(Metric.id)
    )
    return list(session.scalars(query))


@router.get(
    "/events/stream",
    operation_id="streamEvents",
    response_class=StreamingResponse,
    dependencies=[Depends(stream_slot)],
    responses=stream_answers("job-event", EventView),
)
def stream_events(
    job_id: JobId, request: Request, database: DatabaseOf, cursor: ResumeAfter
) -> StreamingResponse:
    """Events from the cursor on, then each new one, until the job is over."""
    _must_exist(database, job_id)
    position = cursor

    def poll() -> Batch:
        nonlocal position
        with database.read() as session:
            end = _end_state(
                session, job_id
            )  # read first: what is written after it is found by the next poll
            rows = events.after(session, job_id, cursor=position, limit=_STREAM_BATCH)
        position = rows[-1].id if rows else position
        items = [StreamItem(str(row.id), "job-event", event_view(row)) for row in rows]
        return _batch(items, end)

    return event_stream(request, poll)


@router.get(
    "/metrics/stream",
    operation_id="streamMetrics",
    response_class=StreamingResponse,
    dependencies=[Depends(stream_slot)],
    responses=stream_answers("metric", MetricView),
)
def stream_metrics(
    job_id: JobId, request: Request, database: DatabaseOf, cursor: ResumeAfter
) -> StreamingResponse:
    """Finished steps from the cursor on, then each new one, until the job is over."""
    _must_exist(database, job_id)
    position = cursor

    def poll() -> Batch:
        nonlocal position
        with database.read() as session:
            end = _end_state(session, job_id)
            rows = metrics.after(session, job_id, cursor=position, limit=_STREAM_BATCH)
        position = rows[-1].id if rows else position
        items = [StreamItem(str(row.id), "metric", metric_view(row)) for row in rows]
        return _batch(items, end)

    return event_stream(request, poll)


def _batch(items: list[StreamItem], end: JobState | None) -> Batch:
    """The stream ends with the first empty batch after the job's end."""
    at_once = len(items) == _STREAM_BATCH or end is not None
    return Batch(items, end=None if items else end, more=bool(items) and at_once)


def _must_exist(database: Database, job_id: str) -> None:
    with database.read() as session:
        jobs.get(session, job_id)


def _end_state(session: Session, job_id: str) -> JobState | None:
    """The job's state when it is over, else None."""
    return end_state(session.scalars(select(Job.state).where(Job.id == job_id)).one())
