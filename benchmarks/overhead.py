"""What Atoll costs while a job trains: tokens/s of one rank program under torchrun and under Atoll, turn by turn.

Both sides run the same job (`examples/demo.yaml` with more steps) on 8 processes of this machine: torchrun starts
`python -m actors.training`, Atoll gets the job over REST on a local cluster of 2 leaf switches x 2 nodes x 2 slots.
The rank program itself measures each step on both sides; the first steps are left out. Control plane and Ray cluster
stay up, idle, during torchrun's turn: the ratio is what running the job under Atoll adds. On a real cluster most of the
plane is on other machines; here it shares the ranks' cores, with four raylets that stand for four nodes. With `--beside
nothing` they are down during torchrun's turn and count in full as Atoll's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from report import Verdict, conclude
from rich.console import Console

from atoll.client import AtollClient
from atoll.demo import SHAPE, control_plane, server_environment
from atoll.demo_view import DemoView

BAR = 0.98
JOB = Path(__file__).resolve().parent.parent / "examples" / "demo.yaml"
TURN_PATIENCE_S = 900.0
SAME_LOSS = 1e-5
"""Relative difference of losses up to which both sides ran the same program."""


@dataclass(frozen=True, slots=True)
class Step:
    step: int
    tokens: int
    step_time_s: float
    loss: float


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of the job on one side."""

    side: str
    tokens_per_s: float
    """Over all steps after the skipped ones: tokens / time."""
    median_step_s: float
    last_loss: float
    load_average_before: float
    step_times_s: tuple[float, ...]
    """Every step, skipped ones included."""


def steady(side: str, steps: Iterable[Step], *, skip: int, total: int, load: float) -> Turn:
    """The turn that `steps` describe. ValueError when steps are missing: a rate over a part would be another rate."""
    ordered = sorted(steps, key=lambda one: one.step)
    if [one.step for one in ordered] != list(range(1, total + 1)):
        raise ValueError(
            f"{side} reported steps {[one.step for one in ordered]}, expected each of 1 to {total} once"
        )
    measured = ordered[skip:]
    return Turn(
        side=side,
        tokens_per_s=sum(one.tokens for one in measured) / sum(one.step_time_s for one in measured),
        median_step_s=statistics.median(one.step_time_s for one in measured),
        last_loss=ordered[-1].loss,
        load_average_before=load,
        step_times_s=tuple(round(one.step_time_s, 5) for one in ordered),
    )


def job(steps: int) -> dict[str, Any]:
    """The demo's job with `steps` steps and neither evaluations nor checkpoints between them."""
    document: dict[str, Any] = yaml.safe_load(JOB.read_text())
    document["name"] = "overhead"
    document["training"] = {**document["training"], "steps": steps, "eval_every": 0}
    document["checkpoint"] = {**document.get("checkpoint", {}), "every": 0}
    return document


def ranks_of(document: Mapping[str, Any]) -> int:
    plan = document.get("parallelism", {})
    return int(plan.get("tp", 1) * plan.get("pp", 1) * plan.get("dp", 1) * plan.get("cp", 1))


def under_torchrun(document: Mapping[str, Any]) -> list[Step]:
    """Runs the job under torchrun and reads rank 0's JSON lines."""
    with tempfile.TemporaryDirectory(prefix="atoll-overhead-") as directory:
        file = Path(directory) / "job.json"
        file.write_text(json.dumps(document))
        command = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(ranks_of(document))),
            *("-m", "actors.training", str(file), "--directory", str(Path(directory) / "job")),
        ]
        environment = server_environment(Path(directory))
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TURN_PATIENCE_S, check=False
        )
    if done.returncode != 0:
        raise RuntimeError(f"torchrun ended with {done.returncode}:\n{done.stderr[-4000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        Step(line["step"], line["tokens"], line["step_time_s"], line["loss"])
        for line in lines
        if "event" not in line
    ]


def under_atoll(document: Mapping[str, Any], client: AtollClient) -> list[Step]:
    """Submits the job, waits for its end and reads its history."""
    submitted = client.submit(document)
    # Seldom: on the ranks' own cores every question slows them down, and torchrun's side asks nothing.
    ended = client.wait(submitted.id, poll_s=2.0, timeout_s=TURN_PATIENCE_S)
    if ended.state != "succeeded":
        raise RuntimeError(f"the job under Atoll {ended.state}: {ended.message}")
    steps = []
    for metric in client.all_metrics(submitted.id):
        if metric.step_time_s is None or metric.loss is None:
            raise RuntimeError(f"step {metric.step} under Atoll has no time or no finite loss")
        steps.append(Step(metric.step, metric.tokens, metric.step_time_s, metric.loss))
    return steps


def measure(document: Mapping[str, Any], *, pairs: int, skip: int, beside: str) -> list[tuple[Turn, Turn]]:
    """(torchrun, Atoll) turns, one after the other."""
    total = int(document["training"]["steps"])
    view = DemoView(Console(stderr=True))
    found: list[tuple[Turn, Turn]] = []
    with contextlib.ExitStack() as stack:
        standing = stack.enter_context(_plane(view)) if beside == "plane" else None
        for number in range(1, pairs + 1):
            load = os.getloadavg()[0]
            one = steady("torchrun", under_torchrun(document), skip=skip, total=total, load=load)
            load = os.getloadavg()[0]
            with contextlib.nullcontext(standing) if standing is not None else _plane(view) as client:
                two = steady("atoll", under_atoll(document, client), skip=skip, total=total, load=load)
            if abs(one.last_loss - two.last_loss) > SAME_LOSS * abs(one.last_loss):
                raise RuntimeError(
                    f"both sides must train the same, but the last loss is {one.last_loss} under torchrun "
                    f"and {two.last_loss} under Atoll"
                )
            found.append((one, two))
            print(
                f"pair {number} of {pairs}: torchrun {one.tokens_per_s:.0f} tokens/s, "
                f"Atoll {two.tokens_per_s:.0f} tokens/s, ratio {two.tokens_per_s / one.tokens_per_s:.3f}",
                flush=True,
            )
    return found


@contextlib.contextmanager
def _plane(view: DemoView) -> Iterator[AtollClient]:
    with (
        tempfile.TemporaryDirectory(prefix="atoll-overhead-") as state,
        control_plane(Path(state), view) as client,
    ):
        yield client


def main() -> int:
    parser = argparse.ArgumentParser(description="tokens/s under Atoll over tokens/s under torchrun")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="steps of each turn")
    parser.add_argument("--skip", type=int, default=20, help="first steps of each turn that do not count")
    parser.add_argument(
        "--beside", choices=("nothing", "plane"), default="plane", help="what runs beside torchrun"
    )
    options = parser.parse_args()
    if options.pairs < 1 or not 0 <= options.skip < options.steps:
        parser.error("--pairs must be 1 or more, and --skip less than --steps")
    document = job(options.steps)
    pairs = measure(document, pairs=options.pairs, skip=options.skip, beside=options.beside)
    ratio = statistics.median(two.tokens_per_s / one.tokens_per_s for one, two in pairs)
    return conclude(
        Verdict("overhead", "ratio", ratio, BAR),
        setting={"job": document, "cluster": SHAPE, **vars(options)},
        samples=[asdict(turn) for pair in pairs for turn in pair],
    )


if __name__ == "__main__":
    sys.exit(main())
