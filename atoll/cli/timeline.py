"""`atoll timeline`: the schedule of one step as the pipeline's ranks ran it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from atoll.answers import Timeline, TimelineRank
from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.output import print_json, standard_output

WIDTH_OF_A_PIPE = 100
"""Characters of a chart when nobody looks."""
SHOWN_RANKS = 64
IDLE = "·"
STYLES = {
    "forward": "blue",
    "backward": "green",
    "backward-input": "green",
    "backward-weight": "yellow",
}
ENDS = {"forward": "[]", "backward": "()", "backward-input": "<>", "backward-weight": "{}"}
"""What encloses a piece of work where colours are not seen."""


def timeline(
    job_id: JobReference,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Step to show; the newest one kept when left out.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Attempt, when several ran the step.")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows when each pipeline rank computed which micro-batch, and the bubble: measured and in theory."""
    with connect(url, token_file) as client:
        job = client.resolve(job_id)
        found = client.timeline(job, step=step, attempt=attempt)
        others = [] if as_json else [item.step for item in client.timelines(job).items]
    if as_json:
        print_json(found)
        return
    console = standard_output()
    print_summary(console, found)
    width = console.width if sys.stdout.isatty() else WIDTH_OF_A_PIPE
    print_chart(console, found, width=width)
    print_ranks(console, found)
    kept = sorted(set(others) - {found.step})
    if kept:
        console.print(f"[dim]Also kept: step {', '.join(map(str, kept))}[/]")


def print_summary(console: Console, shown: Timeline) -> None:
    stages = f", {shown.virtual_stages} stages a rank" if shown.virtual_stages > 1 else ""
    plan = f"{shown.schedule}, {shown.pp} ranks{stages}" if shown.pp > 1 else "no pipeline"
    micro = "1 micro-batch" if shown.microbatches == 1 else f"{shown.microbatches} micro-batches"
    console.print(
        f"Step {shown.step}, attempt {shown.attempt}: {plan}, {micro}, {shown.window_us / 1e3:.1f} ms"
    )
    console.print(
        f"Bubble: measured [bold]{shown.bubble:.1%}[/] of ideal time, in theory [bold]{shown.theory:.1%}[/]"
    )
    if shown.clock_error_us is None:
        console.print("The hosts' clocks could not be compared: ranks are drawn as if they began together.")
    elif shown.clock_error_us:
        console.print(f"Times of different hosts agree within {shown.clock_error_us / 1e3:.3f} ms.")


def print_chart(console: Console, shown: Timeline, *, width: int) -> None:
    """A line a rank; a piece of work is its micro-batch's number, enclosed, as wide as it took."""
    ranks = shown.ranks[:SHOWN_RANKS]
    label = max(len(str(rank.rank)) for rank in ranks)
    columns = max(20, width - label - 6)
    for rank in ranks:
        line = Text(f"rank {rank.rank:>{label}} ", style="dim")
        line.append_text(lane(rank, shown.window_us, columns))
        console.print(line, no_wrap=True, crop=False, soft_wrap=True)
    works = {span[0] for rank in ranks for span in rank.spans}
    legend = Text(" " * (label + 6))
    for work, ends in ENDS.items():
        if work in works:
            legend.append(f"{ends[0]}{work}{ends[1]}", style=STYLES[work]).append("  ")
    console.print(legend.append(f"{IDLE} idle; numbers are micro-batches", style="dim"), soft_wrap=True)
    if len(shown.ranks) > SHOWN_RANKS:
        console.print(f"[dim]… and {len(shown.ranks) - SHOWN_RANKS} more ranks; --json has them all[/]")


def lane(rank: TimelineRank, window_us: int, columns: int) -> Text:
    """One rank's work over `columns` characters."""
    cells: list[tuple[str, str]] = [(IDLE, "dim")] * columns
    if rank.spans_left_out and not rank.spans:
        return Text("drawn without its work: the timeline has too many ranks and micro-batches", style="dim")
    for work, _, microbatch, start_us, end_us in rank.spans:
        first = start_us * columns // max(1, window_us)
        size = max(1, end_us * columns // max(1, window_us) - first)
        drawn = _piece(str(microbatch), size, ENDS.get(work, "||"))
        for i, character in enumerate(drawn):
            if first + i < columns:
                cells[first + i] = (character, STYLES.get(work, ""))
    line = Text()
    for character, style in cells:
        line.append(character, style=style)
    return line


def _piece(number: str, size: int, ends: str) -> str:
    """`number` in `size` characters: `[ 3 ]`, `[3]`, `[]` or `|`."""
    if size == 1:
        return ends[0]
    inside = size - 2
    return ends[0] + (number if len(number) <= inside else "").center(inside) + ends[1]


def print_ranks(console: Console, shown: Timeline) -> None:
    """What each rank computed and where it idled, in milliseconds."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    works = [work for work in ENDS if any(work in rank.busy_us for rank in shown.ranks)]
    for heading in (
        "RANK",
        *(work.upper() for work in works),
        "BUSY ms",
        "BEFORE",
        "BETWEEN",
        "AFTER",
        "IDLE",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for rank in shown.ranks[:SHOWN_RANKS]:
        busy = sum(rank.busy_us.values())
        between = max(0, rank.end_us - rank.start_us - busy)
        after = max(0, shown.window_us - rank.end_us)
        milliseconds = [busy, rank.start_us, between, after]
        table.add_row(
            str(rank.rank),
            *(f"{rank.busy_us.get(work, 0) / 1e3:.1f}" for work in works),
            *(f"{value / 1e3:.1f}" for value in milliseconds),
            f"{max(0, shown.window_us - busy) / max(1, shown.window_us):.1%}",
        )
    console.print(table)
