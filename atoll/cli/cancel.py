"""`atoll cancel`: ends a job."""

from __future__ import annotations

from rich.markup import escape

from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.output import print_json, standard_output


def cancel(
    job_id: JobReference,
    url: Url = None,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Asks for the end of a job; its ranks are stopped and its slots freed."""
    with connect(url, token_file) as client:
        job = client.cancel(client.resolve(job_id))
    if as_json:
        print_json(job)
        return
    is_over = f"is {job.state}" if job.is_terminal else f"is being cancelled (now {job.state})"
    standard_output().print(f"{escape(job.name)} {job.id} {is_over}")
