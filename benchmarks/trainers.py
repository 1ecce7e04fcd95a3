"""Atoll's engine against public trainers that run on a CPU: tokens/s of the same model, data, optimizer and plan.

Hugging Face Accelerate for data parallelism (DDP) and full sharding (FSDP2), DeepSpeed for ZeRO 1, 2 and 3; two ranks
of this machine, started by torchrun on both sides, in turns of some seconds. The verdict is the worst median ratio of
all comparisons. First losses are in the samples (Accelerate and DeepSpeed tell rank 0's own).

Accelerate and DeepSpeed are not dependencies of Atoll: give the Python of an environment that has them beside Atoll
with `--python`. DeepSpeed builds an extension at its first start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from report import Verdict, conclude
from turns import Torchrun, hold, rate, step_s, take_turns, torchrun, warm_up

from atoll.demo import server_environment

BAR = 1.0
RANKS = 2
STEPS_A_TURN = 6
"""Of the slower side, by its warm-up: turns are as long as that, and no shorter than asked for."""
SIDE = Path(__file__).resolve().parent / "trainer_side.py"
COMPARISONS = (
    ("atoll-ddp", "accelerate-ddp"),
    ("atoll-zero3", "accelerate-fsdp"),
    ("atoll-zero1", "deepspeed-zero1"),
    ("atoll-zero2", "deepspeed-zero2"),
    ("atoll-zero3", "deepspeed-zero3"),
)


@contextmanager
def started(name: str, python: str) -> Iterator[Torchrun]:
    """One side, trained until it is warm and then held."""
    with tempfile.TemporaryDirectory(prefix="atoll-trainers-") as directory:
        environment = server_environment(Path(directory)) | {
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": str(SIDE.parent.parent),
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",  # DeepSpeed looks for ninja there
        }
        with torchrun(name, [str(SIDE), name], ranks=RANKS, environment=environment, python=python) as side:
            warm_up(side)
            hold(side)
            yield side


def compare(ours: str, theirs: str, *, python: str, pairs: int, turn_s: float) -> dict[str, Any]:
    """Rates of every pair of turns, and their median ratio."""
    with started(theirs, python) as other, started(ours, python) as atoll:
        turn_s = max(turn_s, STEPS_A_TURN * max(step_s(other), step_s(atoll)))
        turns = take_turns((other, atoll), pairs=pairs, turn_s=turn_s)
        losses = {side.name: [step.loss for step in side.steps()[:5]] for side in (atoll, other)}
        rates = [(rate(one, other.steps()), rate(two, atoll.steps())) for one, two in turns]
    ratios = [two.tokens_per_s / one.tokens_per_s for one, two in rates]
    print(f"{ours} / {theirs}:", " ".join(f"{ratio:.3f}" for ratio in ratios), flush=True)
    return {
        "comparison": f"{ours} / {theirs}",
        "turn_s": round(turn_s, 2),
        "median": statistics.median(ratios),
        "first_losses": losses,
        "rates": [asdict(one) for pair in rates for one in pair],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="Python that has accelerate and deepspeed")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--turn", type=float, default=1.5, help="least seconds of a turn")
    options = parser.parse_args()
    if options.pairs < 5 or options.turn < 1.5:
        parser.error("--pairs must be 5 or more, and --turn 1.5 seconds or more")
    samples = [
        compare(ours, theirs, python=options.python, pairs=options.pairs, turn_s=options.turn)
        for ours, theirs in COMPARISONS
    ]
    for sample in samples:
        print(f"{sample['comparison']}: median {sample['median']:.3f}")
    worst = min(sample["median"] for sample in samples)
    medians = {sample["comparison"]: sample["median"] for sample in samples}
    setting = {"ranks": RANKS, "pairs": options.pairs, "least_turn_s": options.turn, "medians": medians}
    return conclude(Verdict("trainers", "ratio", worst, BAR), setting=setting, samples=samples)


if __name__ == "__main__":
    raise SystemExit(main())
