"""`atoll goodput`: where a job's GPU time went."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from atoll.answers import Goodput
from atoll.cli.connection import JobReference, Json, TokenFile, Url, connect
from atoll.cli.output import print_json, standard_output

BAR = 40
"""Characters of the whole."""


def goodput(
    job_id: JobReference, url: Url = None, token_file: TokenFile = None, as_json: Json = False
) -> None:
    """Shows every GPU-second of a job since its submission in exactly one class, and the share that was useful."""
    with connect(url, token_file) as client:
        found = client.goodput(client.resolve(job_id))
    if as_json:
        print_json(found)
    else:
        print_goodput(standard_output(), found)


def print_goodput(console: Console, found: Goodput) -> None:
    gpus = "1 GPU" if found.gpus == 1 else f"{found.gpus} GPUs"
    console.print(f"{gpus}, {found.total_gpu_seconds:,.1f} GPU-seconds: [bold]{found.goodput:.1%}[/] useful")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("CLASS", "GPU-SECONDS", "SHARE", ""):
        table.add_column(
            heading, justify="right" if heading in ("GPU-SECONDS", "SHARE") else "left", no_wrap=True
        )
    for name, seconds in found.gpu_seconds.items():
        if seconds:
            share = seconds / found.total_gpu_seconds
            table.add_row(name, f"{seconds:,.1f}", f"{share:.1%}", "█" * round(BAR * share))
    console.print(table)
