"""`atoll events`: the history of a job."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from atoll.answers import Event
from atoll.cli.connection import ANSWER_RETRY_S, FOLLOW_RETRY_S, JobReference, Json, TokenFile, Url, connect
from atoll.cli.output import print_json, print_json_line, standard_output, time_text

EVENT_STYLES = {
    "rank-died": "bold red",
    "node-lost": "bold red",
    "hung": "bold red",
    "supervisor-lost": "bold red",
    "certificate-refused": "bold red",
    "checkpoint-failed": "red",
    "checkpoint-skipped": "yellow",
    "repair-started": "yellow",
    "moved": "yellow",
    "replacement-advised": "yellow",
    "replacement-put-off": "yellow",
    "repaired": "green",
    "finished": "bold",
}


def events(
    job_id: JobReference,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows what happened to a job, oldest first."""
    with connect(url, token_file) as client:
        job = client.resolve(job_id)
    with connect(url, token_file, retry_budget_s=FOLLOW_RETRY_S if follow else ANSWER_RETRY_S) as client:
        found = client.follow_events(job) if follow else client.all_events(job)
        if as_json and not follow:
            print_json({"items": [event.model_dump(mode="json") for event in found]})
            return
        console = standard_output()
        for event in found:
            if as_json:
                print_json_line(event)
            else:
                print_event(console, event)


def print_event(console: Console, event: Event) -> None:
    attempt = "" if event.attempt is None else f" [dim]attempt {event.attempt}[/]"
    style = EVENT_STYLES.get(event.kind, "cyan")
    kind = f"[{style}]{event.kind}[/]"
    console.print(f"[dim]{time_text(event.at)}[/] {kind}{attempt} {escape(event.message)}", soft_wrap=True)
