"""`atoll verify`: a job's plan against one process, on this machine."""

from __future__ import annotations

import math
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from atoll.cli.connection import JobPath, Json
from atoll.cli.job_file import read_job
from atoll.cli.messages import JOB_FAILED, WRONG_INPUT, standard_error
from atoll.cli.output import print_json, ranks_text, standard_output
from orchestrator.placement.explain import plan_label
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import Precision

if TYPE_CHECKING:
    from actors.training.verify import Verdict

WEEK_S = 604_800.0
MAX_RANKS = 64
"""Ranks of a plan that one machine is asked to run."""


class Format(StrEnum):
    FP64 = "fp64"
    FP32 = "fp32"
    JOB = "job"


Steps = Annotated[int, typer.Option("--steps", metavar="N", min=1, help="Steps to compare.")]
InPrecision = Annotated[
    Format,
    typer.Option(
        "--precision",
        help="Compare in this format. fp64 shows whether the mathematics is the same; job: the job's own format.",
    ),
]
Within = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="S", min=1.0, max=WEEK_S, help="Longest time each of the two runs may take, s."
    ),
]


def verify(
    path: JobPath,
    steps: Steps = 3,
    precision: InPrecision = Format.FP64,
    timeout_s: Within = 3600.0,
    as_json: Json = False,
) -> None:
    """Runs the job's plan and one process on the same data, here, and shows where they differ. Needs no server.

    Exit code 0 when they are equal within the tolerance of the format, 1 when they differ.
    """
    spec = _in_format(JobSpec.model_validate(read_job(path)), precision)
    ranks = spec.parallelism.world_size
    if ranks > MAX_RANKS:
        standard_error().print(
            f"[bold red]error:[/] the plan has {ranks} ranks and all of them run on this machine; at most {MAX_RANKS}"
        )
        raise typer.Exit(WRONG_INPUT)
    from actors.training.local_gang import (
        RankFailedError,
    )  # torch: two seconds that other verbs need not wait for
    from actors.training.verify import verify as run

    with tempfile.TemporaryDirectory(prefix="atoll-verify-") as directory:
        try:
            verdict = run(
                spec, steps=min(steps, spec.training.steps), directory=Path(directory), deadline_s=timeout_s
            )
        except RankFailedError as error:
            ranks_of: dict[str, list[int]] = {}
            for rank, failure in sorted(error.failures.items()):
                ranks_of.setdefault(failure.reason, []).append(rank)
            for reason, found in ranks_of.items():
                who = f"rank{'s' * (len(found) > 1)} {', '.join(map(str, found))}"
                standard_error().print(f"[bold red]error:[/] {escape(reason)} ({who})")
            # What a rank program refuses is the user's to put right.
            refused = all(failure.refused for failure in error.failures.values())
            raise typer.Exit(WRONG_INPUT if refused else JOB_FAILED) from None
    if as_json:
        print_json(_as_json(verdict))
    else:
        _print(standard_output(), spec, verdict)
    if verdict.first is not None:
        raise typer.Exit(JOB_FAILED)


def _in_format(spec: JobSpec, chosen: Format) -> JobSpec:
    if chosen is Format.JOB:
        return spec
    update = {"precision": Precision(chosen.value), "gradient_precision": "fp32"}
    training = spec.training.model_copy(update=update)
    return spec.model_copy(update={"training": training})


def _print(console: Console, spec: JobSpec, verdict: Verdict) -> None:
    console.print(
        f"{spec.name}: {plan_label(spec.parallelism)} ({ranks_text(spec.parallelism.world_size)}) against one process, "
        f"{len(verdict.steps)} steps, {verdict.precision.value}"
    )
    rows = (
        ("loss", verdict.loss),
        ("gradient norm", verdict.gradient_norm),
        ("final weights", verdict.weights),
    )
    for name, difference in rows:
        console.print(
            f"  {name:14} differs by at most {difference.value:.1e}  [dim]{escape(difference.where)}[/]"
        )
    first = verdict.first
    if first is None:
        console.print(f"[green]equal[/] within {verdict.tolerance:.0e} (relative)")
    else:
        console.print(
            f"[bold red]different[/]: by more than {verdict.tolerance:.0e} (relative) first after step {first[0]}, "
            f"most of all {escape(first[1])}"
        )


def _as_json(verdict: Verdict) -> dict[str, object]:
    first = verdict.first
    return {
        "equal": first is None,
        "precision": verdict.precision.value,
        "tolerance": verdict.tolerance,
        "loss": {"difference": _number(verdict.loss.value), "where": verdict.loss.where},
        "gradient_norm": {
            "difference": _number(verdict.gradient_norm.value),
            "where": verdict.gradient_norm.where,
        },
        "final_weights": {name: _number(value) for name, value in verdict.steps[-1].weights.items()},
        "first": None if first is None else {"step": first[0], "what": first[1]},
    }


def _number(difference: float) -> float | None:
    """JSON has no infinity: None where one side is no number."""
    return difference if math.isfinite(difference) else None
