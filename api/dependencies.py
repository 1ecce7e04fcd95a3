"""What routes get from the app, and parameters that several routes share."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request

from api.live_logs import LiveLogs
from api.problems import invalid
from api.searches import Searches
from orchestrator.settings import Settings
from orchestrator.spec.violations import Violation
from orchestrator.store.engine import Database

LARGEST_ID = 2**31 - 1
"""Cursors, ranks and attempts are 32-bit integers in SQL; PostgreSQL refuses more."""


def get_database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


def get_settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def get_live_logs(request: Request) -> LiveLogs:
    live_logs: LiveLogs = request.app.state.live_logs
    return live_logs


def get_searches(request: Request) -> Searches:
    searches: Searches = request.app.state.searches
    return searches


DatabaseOf = Annotated[Database, Depends(get_database)]
SearchesOf = Annotated[Searches, Depends(get_searches)]
LiveLogsOf = Annotated[LiveLogs, Depends(get_live_logs)]
JobId = Annotated[str, Path(description="Id of the job, a UUID as `POST /api/v1/jobs` gave it.")]
After = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only items with an id above this one.")]
Rank = Annotated[int, Query(ge=0, le=LARGEST_ID, description="Global rank.")]
Attempt = Annotated[
    int | None, Query(ge=1, le=LARGEST_ID, description="Attempt; left out: the newest one that has a log.")
]


def resume_after(
    after: After = 0,
    last_event_id: Annotated[
        str | None,
        Header(description="Id of the last event seen, sent by clients that reconnect; wins over `after`."),
    ] = None,
) -> int:
    """Cursor of a stream: where the client left off."""
    if last_event_id is None:
        return after
    if last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id[:11]) <= LARGEST_ID:
        return int(last_event_id[:11])
    raise invalid(
        [
            Violation(
                "header.last-event-id",
                last_event_id,
                "must be the id of an event of this stream, a whole number",
            )
        ]
    )


ResumeAfter = Annotated[int, Depends(resume_after)]
