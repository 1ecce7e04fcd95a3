"""`atoll list`: jobs, newest first."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from atoll.answers import JobSummary
from atoll.cli.connection import Json, TokenFile, Url, connect
from atoll.cli.messages import standard_error
from atoll.cli.output import (
    age_text,
    loss_text,
    print_json,
    rate_text,
    standard_output,
    state_text,
    step_text,
)

WIDE = 130
NARROW = 76


class State(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


def list_jobs(
    state: Annotated[State | None, typer.Option("--state", help="Only jobs in this state.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only jobs whose name contains this.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Most jobs to show.")] = 50,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Lists jobs, newest first."""
    with connect(url, token_file) as client:
        found = client.all_jobs(state=state.value if state else None, name=name, page=min(limit + 1, 200))
        jobs = list(islice(found, limit + 1))
    more = len(jobs) > limit
    jobs = jobs[:limit]
    if as_json:
        print_json({"items": [job.model_dump(mode="json") for job in jobs], "more": more})
        return
    if not jobs:
        filtered = state is not None or name is not None
        standard_error().print(
            "No job matches." if filtered else "No jobs yet. `atoll submit FILE` makes the first."
        )
        return
    console = standard_output()
    console.print(table_of(jobs, console.width))
    if more:
        standard_error().print(f"Only the newest {limit} are shown; --limit shows more.")


def table_of(jobs: list[JobSummary], width: int) -> Table:
    """As many columns as the width allows; id, name and state always."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    wide, narrow = width >= WIDE, width < NARROW
    table.add_column("ID", no_wrap=True)
    table.add_column("NAME", overflow="ellipsis", no_wrap=True, max_width=30)
    table.add_column("STATE", no_wrap=True)
    table.add_column("STEP", justify="right", no_wrap=True)
    if not narrow:
        table.add_column("LOSS", justify="right", no_wrap=True)
        table.add_column("AGE", justify="right", no_wrap=True)
    if wide:
        table.add_column("RATE", justify="right", no_wrap=True)
        table.add_column("PLAN", no_wrap=True)
        table.add_column("RESTARTS", justify="right", no_wrap=True)
        table.add_column("WHY", overflow="ellipsis", no_wrap=True)
    for job in jobs:
        cells: list[str | Text] = [
            job.id if wide else job.id[:13],
            job.name,
            state_text(job.state),
            step_text(job),
        ]
        if not narrow:
            cells += [loss_text(job.loss), age_text(job.created_at)]
        if wide:
            cells += [
                rate_text(job.tokens_per_s),
                job.plan,
                str(job.restarts),
                job.message.partition("\n")[0],
            ]
        table.add_row(*cells)
    return table
