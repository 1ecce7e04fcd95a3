"""`atoll simulate`: a trace of jobs on a simulated cluster, decided by the production queue and solver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atoll.cli.connection import Json
from atoll.cli.output import duration_text, print_json, standard_output
from atoll.errors import AtollError
from orchestrator.simulate.jobs import LONGEST_S, Assumptions

if TYPE_CHECKING:
    from orchestrator.simulate.report import Report

SHOWN_JOBS = 40
_GIVEN = Assumptions()


class CannotSimulateError(AtollError):
    """A file or option that no simulation can be made of."""


def simulate(
    trace: Annotated[
        Path, typer.Option("--trace", metavar="FILE", help="Jobs: a Philly trace or a snapshot.")
    ],
    fabric: Annotated[
        Path | None,
        typer.Option(
            "--fabric", metavar="FILE", help="Topology file of any known format. (default: the snapshot's)"
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME|FILE",
            help="atoll (as production), fifo, fifo-without-topology, or a policy file of the queue.",
        ),
    ] = "atoll",
    faults: Annotated[
        Path | None,
        typer.Option(
            "--faults", metavar="FILE", help="When nodes are down: a fault trace, or a list of outages."
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="TIER=NAME", help="Dies at the beginning: leaf=l3, node=n7."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of everything that is drawn.")] = 0,
    time_limit_factor: Annotated[
        float | None,
        typer.Option(
            "--time-limit-factor",
            min=1.0,
            max=1e6,
            help="Time limits for a trace without: duration times a random factor from 1 to this one.",
        ),
    ] = None,
    faster: Annotated[
        float,
        typer.Option(
            "--faster", min=0.001, max=1e6, help="Divides the time between submissions of the trace."
        ),
    ] = 1.0,
    start_s: Annotated[
        float, typer.Option("--start-s", min=0.0, max=LONGEST_S, help="From a placement to its first step.")
    ] = _GIVEN.start_s,
    checkpoint_every_s: Annotated[
        float,
        typer.Option(
            "--checkpoint-every-s", min=0.0, max=LONGEST_S, help="Work between checkpoints; 0: none."
        ),
    ] = _GIVEN.checkpoint_every_s,
    save_s: Annotated[
        float, typer.Option("--save-s", min=0.0, max=LONGEST_S, help="Time to save when a job is told to go.")
    ] = _GIVEN.save_s,
    round_s: Annotated[
        float, typer.Option("--round-s", min=0.01, max=LONGEST_S, help="Between two passes over the queue.")
    ] = _GIVEN.round_s,
    step_s: Annotated[
        float,
        typer.Option(
            "--step-s", min=0.0001, max=LONGEST_S, help="Of jobs in a snapshot that have made no step."
        ),
    ] = 1.0,
    as_json: Json = False,
) -> None:
    """Simulates a queue, and says how long jobs waited and how well the cluster was used."""
    # Imported late: numpy takes longer than the whole command line.
    from orchestrator.queue.policy import InvalidPolicyError
    from orchestrator.simulate.philly import InvalidTraceError
    from orchestrator.simulate.scenario import Scenario, run
    from orchestrator.topology.sources.reading import InvalidFabricError

    scenario = Scenario(
        trace=trace,
        fabric=fabric,
        faults=faults,
        policy=policy,
        without=tuple(without or ()),
        seed=seed,
        limit_factor=time_limit_factor,
        faster=faster,
        step_s=step_s,
        given=Assumptions(start_s, checkpoint_every_s, save_s, round_s),
    )
    try:
        report = run(scenario)
    except (InvalidTraceError, InvalidFabricError, InvalidPolicyError) as error:
        raise CannotSimulateError(str(error)) from None
    if as_json:
        print_json(report.as_json())
    else:
        print_report(standard_output(), report)


def print_report(console: Console, report: Report) -> None:
    states = ", ".join(f"{count} {state}" for state, count in report.states.items())
    console.print(
        f"{report.jobs} jobs on {report.accelerators} accelerators, policy {escape(report.policy)}: {states}"
    )
    console.print(_percentiles({"wait": report.wait_s, "completion": report.completion_s}))
    tally = {name: f"{value:,.0f}" for name, value in report.tally.items()}
    console.print(
        f"utilisation {report.utilisation:.1%}   fragmentation {report.fragmentation:.1%}   "
        f"goodput {report.goodput:.1%}   makespan {duration_text(report.makespan_s)}"
    )
    console.print(
        f"pipelines across leaves {tally['cross_leaf']} of {tally['pipelines']} ({report.cross_leaf_share:.1%})   "
        f"starts {tally['starts']}, {tally['passed']} of them past a waiting job   "
        f"preemptions {tally['preemptions']}   gangs that lost a node {tally['node_losses']}"
    )
    if report.outcomes:
        console.print(_outcomes(report))


def _percentiles(rows: Mapping[str, Mapping[str, float]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("", "MEAN", "P50", "P90", "P95", "P99", "MAX"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in rows.items():
        table.add_row(name, *(duration_text(value) for value in found.values()))
    return table


def _outcomes(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("JOB", "STATE", "WAITED", "ENDED AFTER", "PLACEMENTS", "LAST ON", "WHY"):
        table.add_column(heading, no_wrap=heading != "WHY")
    for job in report.outcomes[:SHOWN_JOBS]:
        nodes = ", ".join(job.nodes[:4]) + (" …" if len(job.nodes) > 4 else "")
        waited, ended = (
            "–" if seconds is None else duration_text(seconds) for seconds in (job.waited_s, job.completed_s)
        )
        table.add_row(job.name, job.state, waited, ended, str(job.placements), nodes, escape(job.message))
    if len(report.outcomes) > SHOWN_JOBS:
        table.add_row(f"and {len(report.outcomes) - SHOWN_JOBS} more; --json has them all")
    return table
