"""`atoll plan`: where a job would run, without submitting it."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.answers import Axis, PlanAnswer
from atoll.cli.connection import JobPath, Json, TokenFile, Url, connect
from atoll.cli.job_file import read_job
from atoll.cli.messages import JOB_FAILED
from atoll.cli.output import print_json, ranks_text, standard_output
from atoll.cli.status import SHOWN_RANKS, table_of_ranks


def plan(
    path: JobPath,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows where a job would run now, or what is missing. Exit code 1 when it does not fit."""
    spec = read_job(path)
    with connect(url, token_file) as client:
        answer = client.plan(spec)
    if as_json:
        print_json(answer)
    else:
        print_plan(standard_output(), answer)
    if not answer.fits:
        raise typer.Exit(JOB_FAILED)


def print_plan(console: Console, answer: PlanAnswer) -> None:
    verdict = "[green]fits now[/]" if answer.fits else "[yellow]does not fit now[/]"
    if not answer.ever:
        verdict = "[bold red]never fits this cluster[/]"
    console.print(f"{answer.plan}, {ranks_text(answer.world_size)}: {verdict}")
    if answer.refusal:
        console.print(escape(answer.refusal))
    for detail in answer.refusal_details:
        console.print(f"  {escape(detail)}", style="dim")
    if answer.ranks:
        console.print(table_of_ranks(answer.ranks[:SHOWN_RANKS]))
        console.print(table_of_axes(answer.axes))
    for change in answer.changes:
        console.print(f"  {escape(change)}")
    for sentence in answer.explanation:
        console.print(escape(sentence), style="dim")


def table_of_axes(axes: list[Axis]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("AXIS", "ASKED", "GROUPS", "WIDEST", "OUTSIDE"):
        table.add_column(heading, no_wrap=True)
    for axis in axes:
        table.add_row(
            axis.axis, f"{axis.asked} ({axis.mode})", str(axis.groups), axis.widest, str(axis.outside)
        )
    return table
