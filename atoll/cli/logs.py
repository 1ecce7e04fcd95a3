"""`atoll logs`: what a rank printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from atoll.answers import Log, LogPiece
from atoll.cli.connection import ANSWER_RETRY_S, FOLLOW_RETRY_S, JobReference, Json, TokenFile, Url, connect
from atoll.cli.messages import standard_error
from atoll.cli.output import print_json, print_json_line
from atoll.client import AtollClient


def logs(
    job_id: JobReference,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    rank: Annotated[int, typer.Option("--rank", "-r", min=0, help="Rank whose log is shown.")] = 0,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Attempt whose log is shown. (default: the newest)")
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Shows the log of one rank; followed, it goes through repairs from one attempt to the next."""
    if follow and attempt is not None:
        raise typer.BadParameter("an attempt cannot be followed: leave out --attempt or --follow")
    with connect(url, token_file) as client:
        job = client.resolve(job_id)
    with connect(url, token_file, retry_budget_s=FOLLOW_RETRY_S if follow else ANSWER_RETRY_S) as client:
        if as_json and not follow:
            print_json(joined(list(whole_log(client, job, rank, attempt))))
            return
        parts: Iterator[Log | LogPiece] = whole_log(client, job, rank, attempt)
        if follow:
            parts = client.follow_log(job, rank=rank)
        last: Log | LogPiece | None = None
        for part in parts:
            if as_json:
                print_json_line(part)
            else:
                announce_gap(last, part)
                sys.stdout.write(part.text)
                sys.stdout.flush()
            last = part


def whole_log(client: AtollClient, job_id: str, rank: int, attempt: int | None) -> Iterator[Log]:
    """The log from its first kept byte to its end, of the attempt that was newest when it began."""
    offset = 0
    while True:
        part = client.log(job_id, rank=rank, attempt=attempt, offset=offset)
        yield part
        if not part.text or part.next_offset >= part.size or part.next_offset <= offset:
            return
        offset, attempt = part.next_offset, part.attempt


def joined(parts: list[Log]) -> Log:
    last = parts[-1]
    text = "".join(part.text for part in parts)
    return last.model_copy(update={"text": text, "offset": parts[0].offset})


def announce_gap(last: Log | LogPiece | None, part: Log | LogPiece) -> None:
    """Says on standard error where a new attempt begins and where the beginning of a log was not kept."""
    console = standard_error()
    is_new = last is None or part.attempt != last.attempt
    if last is not None and is_new:
        console.print(f"--- attempt {part.attempt} ---")
    if is_new and part.offset > 0 and part.text:
        console.print(f"--- the first {part.offset} bytes were not kept ---")
