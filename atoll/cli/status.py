"""`atoll status`: everything about one job."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.answers import JobDetail, Rank
from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.output import (
    duration_text,
    loss_text,
    print_json,
    ranks_text,
    rate_text,
    standard_output,
    state_text,
    step_text,
    time_text,
)

SHOWN_RANKS = 64


def status(
    job_id: JobReference,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows one job: state and why, progress, where each rank sits, attempts."""
    with connect(url, token_file) as client:
        job = client.job(client.resolve(job_id))
    if as_json:
        print_json(job)
        return
    console = standard_output()
    print_summary(console, job)
    if job.placement is not None:
        print_placement(console, job)
    if job.attempts:
        print_attempts(console, job)


def print_summary(console: Console, job: JobDetail) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("job", escape(f"{job.name}  {job.id}"))
    table.add_row("state", state_text(job.state))
    if job.reason != "none":
        table.add_row("reason", job.reason)
    if job.message:
        table.add_row("why", escape(job.message))
    table.add_row("plan", f"{job.plan}, {ranks_text(job.world_size)}")
    table.add_row("step", step_text(job))
    table.add_row("loss", f"{loss_text(job.loss)} nats a token")
    if job.evaluation is not None:
        held, unigram = loss_text(job.evaluation.loss), job.evaluation.unigram_loss
        table.add_row(
            "held back", f"{held} nats a token at step {job.evaluation.step}; unigram {unigram:.4f}"
        )
    table.add_row("rate", rate_text(job.tokens_per_s))
    table.add_row("restarts", str(job.restarts))
    table.add_row("submitted", time_text(job.created_at))
    if job.started_at is not None:
        table.add_row("started", time_text(job.started_at))
    if job.finished_at is not None:
        took = duration_text((job.finished_at - (job.started_at or job.created_at)).total_seconds())
        table.add_row("finished", f"{time_text(job.finished_at)}, after {took}")
    console.print(table)


def print_placement(console: Console, job: JobDetail) -> None:
    assert job.placement is not None
    proof = "certified by the ranks" if job.placement.certified else "not certified yet"
    console.print(f"\n[bold]Placement[/] {job.placement.incarnation}, {proof}")
    console.print(table_of_ranks(job.placement.ranks[:SHOWN_RANKS]))
    hidden = len(job.placement.ranks) - SHOWN_RANKS
    if hidden > 0:
        console.print(f"[dim]… and {hidden} more ranks; --json has them all[/]")
    for sentence in job.placement.explanation:
        console.print(escape(sentence), style="dim")


def table_of_ranks(ranks: list[Rank]) -> Table:
    """Rank, coordinates, and where it sits from the leaf switch down to the accelerator."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("RANK", "AXES", "LEAF", "NODE", "SLOT", "ISLAND", "PID"):
        table.add_column(
            heading, no_wrap=True, justify="right" if heading in {"RANK", "SLOT", "PID"} else "left"
        )
    context = any(rank.coordinates.get("cp") for rank in ranks)
    for rank in ranks:
        table.add_row(
            str(rank.rank),
            axes_text(rank, context=context),
            escape(rank.leaf or "unknown"),
            escape(rank.node),
            str(rank.index),
            escape(rank.island or "unknown"),
            "–" if rank.pid is None else str(rank.pid),
        )
    return table


def axes_text(rank: Rank, *, context: bool = False) -> str:
    """Coordinates in short: `tp0 pp1 dp0`; `context` tells whether the job has context parallelism."""
    return " ".join(f"{axis}{at}" for axis, at in rank.coordinates.items() if axis != "cp" or context)


def print_attempts(console: Console, job: JobDetail) -> None:
    console.print("\n[bold]Attempts[/]")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("NO", justify="right", no_wrap=True)
    table.add_column("STARTED", no_wrap=True)
    table.add_column("STEPS", no_wrap=True)
    table.add_column("OUTCOME", no_wrap=True)
    table.add_column("MESSAGE", overflow="fold")
    for attempt in job.attempts:
        last = "…" if attempt.end_step is None else str(attempt.end_step)
        table.add_row(
            str(attempt.number),
            time_text(attempt.started_at),
            f"{attempt.start_step}–{last}",
            attempt.outcome or "going on",
            escape(attempt.message),
        )
    console.print(table)
