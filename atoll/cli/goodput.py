"""`atoll goodput`: where GPU time went, of a job or of all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.answers import ClusterGoodput, Goodput, Ledger, Repair
from atoll.cli.connection import Json, TokenFile, Url, connect
from atoll.cli.output import print_json, standard_output
from atoll.errors import AtollError

BAR = 40
"""Characters of the whole."""
HOURS = 24.0
NOT_HELD = ("degraded", "queued")


class HoursOfAJobError(AtollError):
    """A span was asked for of one job, whose ledger is that of its whole life."""


def goodput(
    job_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]",
            help="Job id, a unique prefix of one, or the name of exactly one job. Left out: all jobs.",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", min=0.01, max=8760, help="Without ID: the last so many hours. (default: 24)"),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows every GPU-second in exactly one class, the share that was useful, and what became of each fault.

    With ID: of a job since its submission. Without: of all jobs in the last 24 hours, by project.
    """
    if job_id is not None and hours is not None:
        raise HoursOfAJobError(
            f"--hours {hours:g} was given with a job: a job's ledger is that of its whole life; leave out one"
        )
    with connect(url, token_file) as client:
        if job_id is not None:
            job = client.goodput(client.resolve(job_id))
            print_json(job) if as_json else print_goodput(standard_output(), job)
            return
        since = datetime.now(UTC) - timedelta(hours=HOURS if hours is None else hours)
        cluster = client.cluster_goodput(since=since)
        print_json(cluster) if as_json else print_cluster(standard_output(), cluster)


def print_goodput(console: Console, found: Goodput) -> None:
    gpus = "1 GPU" if found.gpus == 1 else f"{found.gpus} GPUs"
    console.print(f"{gpus}, {_summary(found)}")
    console.print(_classes(found))
    if found.repairs:
        console.print(_repairs(found.repairs))


def print_cluster(console: Console, found: ClusterGoodput) -> None:
    hours = (found.until - found.since).total_seconds() / 3600
    jobs = "1 job" if found.jobs == 1 else f"{found.jobs} jobs"
    console.print(f"{jobs} in {hours:,.1f} hours, {_summary(found)}")
    if not found.jobs:
        return
    console.print(_classes(found))
    table = _table("PROJECT", "JOBS", "HELD", "USEFUL", "ETTR")
    for project in found.projects:
        table.add_row(
            escape(project.project),
            str(project.jobs),
            f"{project.held_gpu_seconds:,.1f}",
            f"{project.goodput:.1%}",
            f"{project.ettr:.1%}",
        )
    console.print(table)


def _summary(found: Ledger) -> str:
    held = f"{found.held_gpu_seconds:,.1f} GPU-seconds held: [bold]{found.goodput:.1%}[/] useful"
    return f"{held}; effective training time ratio {found.ettr:.1%}"


def _classes(found: Ledger) -> Table:
    """Shares are of what was held; what was not held is told as a figure."""
    table = _table("CLASS", "GPU-SECONDS", "SHARE", "")
    for name, seconds in found.gpu_seconds.items():
        if seconds is None:
            table.add_row(name, "not measured", "", "in useful-compute")
        elif seconds and name in NOT_HELD:
            table.add_row(name, f"{seconds:,.1f}", "not held", "")
        elif seconds:
            share = seconds / found.held_gpu_seconds
            table.add_row(name, f"{seconds:,.1f}", f"{share:.1%}", "█" * round(BAR * share))
    return table


def _repairs(repairs: list[Repair]) -> Table:
    table = _table("FAULT", "STEP", "REPAIR", "UNNOTICED", "SETTLING", "REPAIRING", "FIRST STEP")
    for repair in repairs:
        rung = repair.rung or ("none: the job ended" if repair.given_up else "under way")
        parts = [repair.seconds.get(part) for part in ("unnoticed", "settling", "repair", "first-step")]
        step = "–" if repair.step is None else str(repair.step)
        table.add_row(
            repair.fault, step, rung, *("–" if part is None else f"{part:,.2f} s" for part in parts)
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    words = ("CLASS", "PROJECT", "FAULT", "REPAIR", "")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in words else "right", no_wrap=True)
    return table
