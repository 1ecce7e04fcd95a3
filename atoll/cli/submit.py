"""`atoll submit`: sends a job, and waits for its end if asked to."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

from atoll.answers import JobDetail, JobSummary
from atoll.cli.connection import FOLLOW_RETRY_S, JobPath, Json, TokenFile, Url, connect
from atoll.cli.events import print_event
from atoll.cli.job_file import read_job
from atoll.cli.messages import INTERRUPTED, JOB_FAILED, standard_error
from atoll.cli.output import loss_text, print_json, standard_output
from atoll.client import AtollClient
from atoll.errors import ServerUnreachableError


def submit(
    path: JobPath,
    wait: Annotated[
        bool, typer.Option("--wait", help="Stay until the job has ended; exit code 1 if it failed.")
    ] = False,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Submits a job. Everything wrong with the file is said before anything is sent."""
    spec = read_job(path)
    with connect(url, token_file) as client:
        job = client.submit(spec)
    if not wait:
        if as_json:
            print_json(job)
        else:
            standard_output().print(f"{job.id} {escape(job.name)} {job.state}")
        return
    with connect(url, token_file, retry_budget_s=FOLLOW_RETRY_S) as client:
        ended = wait_for(client, job, quiet=as_json)
    if as_json:
        print_json(ended)
    else:
        print_end(ended)
    if ended.state != "succeeded":
        raise typer.Exit(JOB_FAILED)


def wait_for(client: AtollClient, job: JobSummary, *, quiet: bool) -> JobDetail:
    """The ended job. Its events are shown as they come; Ctrl-C leaves the job running."""
    console = standard_output()
    if not quiet:
        console.print(f"{job.id} {escape(job.name)} submitted")
    try:
        for event in client.follow_events(job.id):
            if not quiet:
                print_event(console, event)
                sys.stdout.flush()
        return client.wait(job.id)
    except KeyboardInterrupt:
        standard_error().print(
            f"\nNo longer waiting; job {job.id} goes on. `atoll status {job.id}` shows it, "
            f"`atoll cancel {job.id}` ends it."
        )
        raise typer.Exit(INTERRUPTED) from None
    except ServerUnreachableError as error:
        raise ServerUnreachableError(f"{error} Job {job.id} goes on without it.") from None


def print_end(job: JobDetail) -> None:
    console = standard_output()
    console.print(
        f"{escape(job.name)} {job.state} at step {job.step}/{job.total_steps}, loss {loss_text(job.loss)}"
    )
    if job.evaluation is not None:
        console.print(
            f"held-back loss {loss_text(job.evaluation.loss)} nats a token, "
            f"unigram model {job.evaluation.unigram_loss:.4f}"
        )
    if job.state == "failed":
        standard_error().print(escape(job.message))
