"""`atoll health`: which ranks, nodes and links of a job are slow."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.answers import Finding, Health
from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.output import print_json, standard_output

WATCHED_SHOWN = 8


def health(
    job_id: JobReference, url: Url = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Shows which ranks, nodes and links of a job are slow, what they cost, and which work is not evenly spread. Exit
    code 0 whatever is found."""
    with connect(url, token_file) as client:
        found = client.health(client.resolve(job_id))
    if as_json:
        print_json(found)
    else:
        print_health(standard_output(), found)


def print_health(console: Console, found: Health) -> None:
    slow = [one for one in found.findings if one.category == "straggler"]
    console.print(_summary(found, slow))
    if slow:
        console.print(_table(slow))
    for one in found.findings:
        if one.category == "imbalance":
            console.print(
                f"[yellow]uneven work[/] (no machine's fault): {escape(one.sentence)}", soft_wrap=True
            )
    watched = [one for one in found.findings if one.category == "watch"]
    for one in watched[:WATCHED_SHOWN]:
        console.print(f"  {escape(one.sentence)}", style="dim", soft_wrap=True)
    if len(watched) > WATCHED_SHOWN:
        console.print(f"  {len(watched) - WATCHED_SHOWN} more to watch; --json lists all", style="dim")


def _summary(found: Health, slow: list[Finding]) -> str:
    if found.policy == "off":
        return "Nothing is measured: the job file says health.stragglers: off."
    if not found.heatmap_attempts and not found.findings:
        return "Nothing is known yet: the first steps of an attempt are not judged."
    now = sorted({one.subject for one in slow if one.ongoing})
    if now:
        return f"[bold red]slow now[/]: {escape(', '.join(now))}"
    return "[green]healthy[/]" + (", but it was not always" if slow else "")


def _table(slow: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("ATTEMPT", "WHAT", "NODE", "KIND", "STEPS", "FACTOR", "COST A STEP", "CONFIDENCE"):
        table.add_column(heading, no_wrap=heading != "NODE")
    for one in slow:
        table.add_row(
            str(one.attempt),
            one.subject,
            ", ".join(one.nodes),
            one.kind,
            f"{one.from_step}-{'' if one.ongoing else one.to_step}",
            f"{one.factor:.2f}",
            f"{one.step_cost_s:.3g} s{' (CPU)' if one.clock == 'cpu' else ''}",
            f"{one.confidence:.2f}",
        )
    return table
