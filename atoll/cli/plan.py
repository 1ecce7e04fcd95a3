"""`atoll plan`: where a job would run and what it would cost, without submitting it."""

from __future__ import annotations

from math import isnan
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.answers import Axis, PlanAnswer
from atoll.cli.connection import JobPath, Json, TokenFile, Url, connect
from atoll.cli.cost import print_estimate, print_search
from atoll.cli.job_file import read_job
from atoll.cli.messages import JOB_FAILED
from atoll.cli.offline_plan import fabric_of, plan_on
from atoll.cli.output import print_json, ranks_text, standard_output
from atoll.cli.status import SHOWN_RANKS, table_of_ranks
from orchestrator.estimate.questions import LEAST, MOST_GPU_HOURS, MOST_STALL_S, MOST_TOKENS, Question
from orchestrator.spec.rules import MAX_RANKS


def a_number(given: float | None) -> float | None:
    """`nan` lies in every range that is checked by comparing."""
    if given is not None and isnan(given):
        raise typer.BadParameter(f"{given} is not a number")
    return given


FabricFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--fabric",
        metavar="FILE",
        help="Plan here, for this fabric when it is empty, instead of asking a server. May be repeated: files complete "
        "one another, as in `atoll fabric show`.",
    ),
]
Auto = Annotated[bool, typer.Option("--auto", help="Search for the fastest plans that fit.")]
Ranks = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        min=1,
        max=MAX_RANKS,
        metavar="N",
        help="Accelerators for --auto. (default: those of the job's own plan; when that has one, all usable ones of "
        "the type that the job asks for, else of the type with most)",
    ),
]
Tokens = Annotated[
    float | None,
    typer.Option(
        "--tokens",
        min=1,
        max=MOST_TOKENS,
        callback=a_number,
        metavar="N",
        help="Time and GPU-hours to so many tokens. (default: the job's steps)",
    ),
]
Stall = Annotated[
    float | None,
    typer.Option(
        "--checkpoint-stall",
        min=LEAST,
        max=MOST_STALL_S,
        callback=a_number,
        metavar="S",
        help="Seconds that training waits for a checkpoint, as measured: gives advice on how often to write one.",
    ),
]
Failures = Annotated[
    float | None,
    typer.Option(
        "--gpu-hours-between-failures",
        min=LEAST,
        max=MOST_GPU_HOURS,
        callback=a_number,
        metavar="H",
        help="As measured on the cluster, for that advice. (default: Llama 3's)",
    ),
]


def plan(
    path: JobPath,
    fabric: FabricFiles = None,
    auto: Auto = False,
    ranks: Ranks = None,
    tokens: Tokens = None,
    checkpoint_stall: Stall = None,
    gpu_hours_between_failures: Failures = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows where a job would run, or what is missing, and what it would cost. Exit code 1 when it does not fit; with
    --auto when no plan does."""
    spec = read_job(path)
    if fabric:
        question = Question(auto, ranks, tokens, checkpoint_stall, gpu_hours_between_failures)
        answer = plan_on(fabric_of(fabric), spec, question)
    else:
        with connect(url, token_file) as client:
            answer = client.plan(
                spec,
                auto=auto,
                ranks=ranks,
                tokens=tokens,
                checkpoint_stall_s=checkpoint_stall,
                gpu_hours_between_failures=gpu_hours_between_failures,
            )
    if as_json:
        print_json(answer)
    else:
        print_plan(standard_output(), answer, when="when the fabric is empty" if fabric else "now")
    if not (answer.search.best if answer.search is not None else answer.fits):
        raise typer.Exit(JOB_FAILED)


def print_plan(console: Console, answer: PlanAnswer, *, when: str = "now") -> None:
    verdict = f"[green]fits {when}[/]" if answer.fits else f"[yellow]does not fit {when}[/]"
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
    if answer.estimate is not None:
        print_estimate(console, answer.estimate)
    if answer.search is not None:
        print_search(console, answer.search)
    for note in answer.notes:
        console.print(escape(note), style="dim")


def table_of_axes(axes: list[Axis]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("AXIS", "ASKED", "GROUPS", "WIDEST", "OUTSIDE"):
        table.add_column(heading, no_wrap=True)
    for axis in axes:
        table.add_row(
            axis.axis, f"{axis.asked} ({axis.mode})", str(axis.groups), axis.widest, str(axis.outside)
        )
    return table
