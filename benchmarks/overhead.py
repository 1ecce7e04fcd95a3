"""What Atoll costs while a job trains: tokens/s of one rank program under torchrun and under Atoll, turn by turn.

Both sides run the same job (`examples/demo.yaml` without end) on 8 processes of this machine: torchrun starts
`python -m actors.training` with one agent for the eight, Atoll gets the job over REST on a local cluster that is one
node of eight slots, with one agent for the eight. Both are started once and then take turns of some seconds: all that
runs because of the other side's job is stopped by signal (ranks and torchrun's agent; ranks, agents and supervisor). So
both sides see the same machine, whose speed changes from minute to minute. Control plane and Ray cluster stay up in
either turn: the ratio is what running the job under Atoll adds.

With `--shape 2x2x2` this machine stands for four nodes, and the agents of all four share its cores with the ranks.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from report import Verdict, conclude
from rich.console import Console
from turns import START_PATIENCE_S, Rate, Step, Torchrun, hold, let_run, rate, take_turns, torchrun, warm_up

from atoll.client import AtollClient
from atoll.demo import MARKER, control_plane, marked, server_environment
from atoll.demo_view import DemoView

BAR = 0.98
JOB = Path(__file__).resolve().parent.parent / "examples" / "demo.yaml"
SHAPE = "1x1x8"
"""Leaf switches x nodes x slots: one node, as this machine is."""
STEPS = 100_000
"""More than a run gets to: both sides are ended in the middle of theirs."""
LONGEST_TURN_S = 8.0
"""An agent that is stopped for longer could take its supervisor for dead."""
SAME_LOSS = 1e-5
"""Relative difference of losses up to which both sides ran the same program."""


@dataclass
class Atoll:
    client: AtollClient
    job_id: str
    marker: str
    standing: frozenset[int]
    """What ran before the job was submitted: control plane and cluster."""
    name: str = "atoll"

    def steps(self) -> Sequence[Step]:
        return tuple(
            Step(metric.step, metric.at.timestamp(), metric.tokens, metric.loss)
            for metric in self.client.all_metrics(self.job_id)
            if metric.loss is not None
        )

    def processes(self) -> Sequence[int]:
        return sorted(set(marked(self.marker)) - self.standing)


def job() -> dict[str, Any]:
    """The demo's job without end, evaluations and checkpoints."""
    document: dict[str, Any] = yaml.safe_load(JOB.read_text())
    document["name"] = "overhead"
    document["training"] = {**document["training"], "steps": STEPS, "eval_every": 0}
    document["checkpoint"] = {**document.get("checkpoint", {}), "every": 0}
    return document


def ranks_of(document: Mapping[str, Any]) -> int:
    plan = document.get("parallelism", {})
    return int(plan.get("tp", 1) * plan.get("pp", 1) * plan.get("dp", 1) * plan.get("cp", 1))


@contextmanager
def under_torchrun(document: Mapping[str, Any]) -> Iterator[Torchrun]:
    with tempfile.TemporaryDirectory(prefix="atoll-overhead-") as directory:
        file = Path(directory) / "job.json"
        file.write_text(json.dumps(document))
        program = ["-m", "actors.training", str(file), "--directory", str(Path(directory) / "job")]
        environment = server_environment(Path(directory))
        with torchrun("torchrun", program, ranks=ranks_of(document), environment=environment) as side:
            yield side


@contextmanager
def under_atoll(document: Mapping[str, Any], shape: str) -> Iterator[Atoll]:
    with tempfile.TemporaryDirectory(prefix="atoll-overhead-") as state:
        marker = f"{MARKER}={state}"
        with control_plane(Path(state), DemoView(Console(stderr=True)), shape) as client:
            standing = frozenset(marked(marker))
            side = Atoll(client, client.submit(document).id, marker, standing)
            try:
                yield side
            finally:
                let_run(side)
                client.cancel(side.job_id)
                client.wait(side.job_id, poll_s=1.0, timeout_s=START_PATIENCE_S)


def check_same_losses(one: Sequence[Step], two: Sequence[Step]) -> int:
    """Both sides must train the same; returns how many steps were compared."""
    losses = {step.number: step.loss for step in one}
    common = [step for step in two if step.number in losses]
    for step in common:
        if abs(step.loss - losses[step.number]) > SAME_LOSS * abs(step.loss):
            raise RuntimeError(
                f"step {step.number} has loss {losses[step.number]} under torchrun and {step.loss} under Atoll"
            )
    return len(common)


def measure(document: Mapping[str, Any], *, pairs: int, turn_s: float, shape: str) -> list[tuple[Rate, Rate]]:
    """(torchrun, Atoll) rates of each pair of turns."""
    with under_atoll(document, shape) as atoll, under_torchrun(document) as other:
        warm_up(atoll)
        warm_up(other)
        hold(atoll)
        hold(other)
        turns = take_turns((other, atoll), pairs=pairs, turn_s=turn_s)
        let_run(atoll)
        warm_up(atoll)  # its history is complete once a later step is in it
        time.sleep(turn_s)
        ours, theirs = atoll.steps(), other.steps()
    print(f"{check_same_losses(theirs, ours)} steps have the same losses on both sides")
    return [(rate(one, theirs), rate(two, ours)) for one, two in turns]


def main() -> int:
    parser = argparse.ArgumentParser(description="tokens/s under Atoll over tokens/s under torchrun")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--turn", type=float, default=6.0, help="seconds of each turn")
    parser.add_argument("--shape", default=SHAPE, help="leaf switches x nodes x slots of the local cluster")
    options = parser.parse_args()
    if options.pairs < 5 or not 2.0 <= options.turn <= LONGEST_TURN_S:
        parser.error(f"--pairs must be 5 or more, and --turn 2 to {LONGEST_TURN_S:g} seconds")
    document = job()
    pairs = measure(document, pairs=options.pairs, turn_s=options.turn, shape=options.shape)
    ratios = [two.tokens_per_s / one.tokens_per_s for one, two in pairs]
    print("ratios of the pairs:", " ".join(f"{ratio:.3f}" for ratio in ratios))
    return conclude(
        Verdict("overhead", "ratio", statistics.median(ratios), BAR),
        setting={"job": document, **vars(options)},
        samples=[asdict(one) for pair in pairs for one in pair],
    )


if __name__ == "__main__":
    sys.exit(main())
