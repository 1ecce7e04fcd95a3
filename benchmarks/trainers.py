"""Atoll's engine against public trainers that run on a CPU: tokens/s of the same model, data, optimizer and plan.

Hugging Face Accelerate for data parallelism (DDP) and full sharding (FSDP2), DeepSpeed for ZeRO 1, 2 and 3; two ranks
of this machine, started by torchrun on both sides, turn by turn. The verdict is the worst median ratio of all
comparisons. First losses are in the samples (Accelerate and DeepSpeed tell rank 0's own).

Accelerate and DeepSpeed are not dependencies of Atoll: give the Python of an environment that has them beside Atoll
with `--python`. DeepSpeed builds an extension at its first start.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from report import Verdict, conclude

from atoll.preflight import free_port

BAR = 1.0
RANKS = 2
SIDE = Path(__file__).resolve().parent / "trainer_side.py"
COMPARISONS = (
    ("atoll-ddp", "accelerate-ddp"),
    ("atoll-zero3", "accelerate-fsdp"),
    ("atoll-zero1", "deepspeed-zero1"),
    ("atoll-zero2", "deepspeed-zero2"),
    ("atoll-zero3", "deepspeed-zero3"),
)
TURN_PATIENCE_S = 600.0
TOKENS = 8 * 128


def turn(side: str, steps: int, python: str) -> dict[str, Any]:
    command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    command += ["--master-port", str(free_port("127.0.0.1")), str(SIDE), side, str(steps)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": str(SIDE.parent.parent),
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TURN_PATIENCE_S, check=False, env=environment
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"side"')]
    if done.returncode or not lines:
        raise SystemExit(f"{side} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer | {"load_average_after": os.getloadavg()[0]}


def tokens_per_s(answer: dict[str, Any], skip: int) -> float:
    times = answer["step_times_s"][skip:]
    return TOKENS * len(times) / sum(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="Python that has accelerate and deepspeed")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--skip", type=int, default=10, help="first steps left out")
    options = parser.parse_args()
    samples = []
    medians = {}
    for ours, theirs in COMPARISONS:
        ratios = []
        for pair in range(options.pairs):
            sides = [ours, theirs] if pair % 2 == 0 else [theirs, ours]
            answers = {side: turn(side, options.steps, options.python) for side in sides}
            ratio = tokens_per_s(answers[ours], options.skip) / tokens_per_s(answers[theirs], options.skip)
            ratios.append(ratio)
            samples.append({"pair": pair, "ratio": ratio, "sides": answers})
            print(f"{ours} / {theirs}: {ratio:.3f}", flush=True)
        medians[f"{ours} / {theirs}"] = statistics.median(ratios)
    for name, ratio in medians.items():
        print(f"{name}: median {ratio:.3f}")
    worst = min(medians.values())
    setting = {"ranks": RANKS, "pairs": options.pairs, "steps": options.steps, "medians": medians}
    return conclude(Verdict("trainers", "ratio", worst, BAR), setting=setting, samples=samples)


if __name__ == "__main__":
    raise SystemExit(main())
