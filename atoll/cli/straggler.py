"""`atoll straggler`: which ranks, links and nodes of a recorded run were slow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.cli.connection import Json
from atoll.cli.output import print_json, standard_output
from atoll.errors import AtollError
from orchestrator.health.layout import RANKS_A_NODE
from orchestrator.health.lines import RecordingError
from orchestrator.health.recording import judge, read_recording
from orchestrator.health.verdict import Straggler, Verdict

SHOWN = 40


class StragglerFileError(AtollError):
    """A recording that cannot be read or judged."""


def straggler(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV: step,rank,dp_rank,stage,fwd_s,bwd_s,recv_s,send_s,coll_s,gc_s,wall_s or step,rank,step_time; "
            "node and role may be added.",
        ),
    ],
    ranks_per_node: Annotated[
        int,
        typer.Option(
            "--ranks-per-node",
            min=1,
            metavar="N",
            help="Ranks side by side that share a node, where the file has no column node.",
        ),
    ] = RANKS_A_NODE,
    as_json: Json = False,
) -> None:
    """Judges recorded step times: slow ranks, links and nodes, and work that is not evenly spread. Exit code 0
    whatever is found. Needs no server."""
    try:
        verdict = judge(read_recording(path, ranks_a_node=ranks_per_node))
    except RecordingError as error:
        first, *more = error.problems
        raise StragglerFileError("\n".join([f"{path}: {first}", *(f"  {line}" for line in more)])) from None
    except OSError as error:
        raise StragglerFileError(f"{path}: {error.strerror or error}") from None
    if as_json:
        print_json(verdict.to_json())
    else:
        print_verdict(standard_output(), verdict)


def print_verdict(console: Console, verdict: Verdict) -> None:
    console.print(f"{verdict.ranks} ranks, {verdict.steps} steps: {_summary(verdict)}")
    if verdict.stragglers:
        console.print(_table(verdict.stragglers[:SHOWN]))
        for found in verdict.stragglers[:SHOWN]:
            console.print(f"  rank {found.rank}: {escape(found.reason)}", style="dim", soft_wrap=True)
        if len(verdict.stragglers) > SHOWN:
            console.print(f"  {len(verdict.stragglers) - SHOWN} more; --json lists all", style="dim")
    for uneven in verdict.imbalance:
        console.print(
            f"[yellow]uneven work[/] ({uneven.kind}, no machine's fault): {escape(uneven.reason)}; "
            f"cost {uneven.cost_s:.4g}",
            soft_wrap=True,
        )
    for seen in verdict.watch[:SHOWN]:
        console.print(
            f"  rank {seen.rank}, steps {seen.from_step}-{seen.to_step}: {escape(seen.reason)}; cost {seen.cost_s:.4g}",
            style="dim",
            soft_wrap=True,
        )
    if len(verdict.watch) > SHOWN:
        console.print(f"  {len(verdict.watch) - SHOWN} more to watch; --json lists all", style="dim")


def _summary(verdict: Verdict) -> str:
    if verdict.healthy:
        return "[green]healthy[/]"
    ranks = {found.rank for found in verdict.stragglers}
    return f"[bold red]{len(ranks)} slow rank{'s' if len(ranks) > 1 else ''}[/]"


def _table(found: tuple[Straggler, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("RANK", "KIND", "STEPS", "FACTOR", "COST", "CONFIDENCE"):
        table.add_column(heading, no_wrap=True)
    for one in found:
        rank = str(one.rank) if one.peer is None else f"{one.rank} - {one.peer}"
        table.add_row(
            rank,
            one.kind,
            f"{one.from_step}-{one.to_step}",
            f"{one.factor:.2f}",
            f"{one.cost_s:.4g}",
            f"{one.confidence:.2f}",
        )
    return table
