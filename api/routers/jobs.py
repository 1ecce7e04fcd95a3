"""Jobs: submit, list, show, cancel."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from api.dependencies import DatabaseOf, JobId
from api.job_document import JobSpecOf
from api.problems import answers, invalid
from api.schemas.jobs import CheckpointList, JobDetail, JobPage, JobSummary
from api.views.jobs import checkpoint_view, job_detail, job_summary
from orchestrator.lifecycle.states import JobState
from orchestrator.spec.violations import Violation
from orchestrator.store import checkpoints, jobs

router = APIRouter(prefix="/api/v1/jobs", tags=["jobs"])

_VISIBLE_ASCII = re.compile(r"[!-~]{1,255}")

JOB_BODY = {
    "requestBody": {
        "required": True,
        "description": "A job file, as JSON or as YAML.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/JobSpec"}},
            "application/yaml": {"schema": {"type": "string", "description": "The job file as YAML text."}},
        },
    }
}
"""OpenAPI of the routes that take a job file; its text is read by `api.job_document`."""


@router.post(
    "",
    status_code=201,
    operation_id="submitJob",
    openapi_extra=JOB_BODY,
    responses={
        200: {
            "model": JobSummary,
            "description": "The job that the same key and the same job file made before.",
            "headers": {"Idempotency-Replayed": {"description": "`true`", "schema": {"type": "string"}}},
        },
        201: {
            "headers": {"Location": {"description": "Path of the new job.", "schema": {"type": "string"}}},
        },
        **answers(400, 409, 413, 415, 422, 503),
    },
)
def submit(
    spec: JobSpecOf,
    database: DatabaseOf,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(description="1 to 255 visible ASCII characters; makes a repeated request harmless."),
    ] = None,
) -> JobSummary:
    """Takes a job. It is queued until a controller places it."""
    if idempotency_key is not None and not _VISIBLE_ASCII.fullmatch(idempotency_key):
        message = "must be 1 to 255 visible ASCII characters"
        raise invalid([Violation("header.idempotency-key", idempotency_key, message)])
    with database.write() as session:
        inserted = jobs.insert(session, spec, now=database.now(), idempotency_key=idempotency_key)
        summary = job_summary(inserted.job)
    response.headers["Location"] = f"/api/v1/jobs/{summary.id}"
    if not inserted.created:
        response.status_code = 200
        response.headers["Idempotency-Replayed"] = "true"
    return summary


@router.get("", operation_id="listJobs", responses=answers(422, 503))
def list_jobs(
    database: DatabaseOf,
    limit: Annotated[int, Query(ge=1, le=200, description="Jobs a page.")] = 50,
    cursor: Annotated[
        str | None, Query(max_length=100, description="`next_cursor` of the page before.")
    ] = None,
    state: Annotated[list[JobState] | None, Query(description="Only these states; may be repeated.")] = None,
    name: Annotated[
        str | None,
        Query(pattern=r"^[A-Za-z0-9-]{1,63}$", description="Only jobs whose name contains this."),
    ] = None,
) -> JobPage:
    """Jobs, newest first. Jobs added meanwhile neither shift nor double an entry."""
    with database.read() as session:
        found = jobs.page(session, limit=limit, cursor=cursor, states=state or (), name_contains=name)
        return JobPage(items=[job_summary(job) for job in found.items], next_cursor=found.next_cursor)


@router.get("/{job_id}", operation_id="getJob", responses=answers(404, 422, 503))
def show(job_id: JobId, database: DatabaseOf) -> JobDetail:
    """One job whole: what was asked, where it sits, its attempts, its newest evaluation."""
    with database.read() as session:
        return job_detail(session, jobs.get(session, job_id))


@router.post(
    "/{job_id}/cancel", status_code=202, operation_id="cancelJob", responses=answers(404, 409, 422, 503)
)
def cancel(job_id: JobId, database: DatabaseOf) -> JobSummary:
    """Asks for the job's end; the controller carries it out. Asking again changes nothing."""
    with database.write() as session:
        return job_summary(jobs.request_cancel(session, job_id, now=database.now()))


@router.get("/{job_id}/checkpoints", operation_id="listCheckpoints", responses=answers(404, 422, 503))
def list_checkpoints(job_id: JobId, database: DatabaseOf) -> CheckpointList:
    """Checkpoints the job has written, newest step first, deleted and damaged ones included."""
    with database.read() as session:
        jobs.get(session, job_id)
        return CheckpointList(items=[checkpoint_view(row) for row in checkpoints.of_job(session, job_id)])
