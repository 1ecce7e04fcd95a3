"""From submit to the first finished step: Atoll against Ray Train's TorchTrainer, turn by turn on one local cluster.

Same train function, world size and cluster. Atoll's time runs from before the POST; Ray Train's from the call of `fit`
by a connected driver that has everything imported. Both end when rank 0 has finished step 1, by its own clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray_train
import yaml
from report import Verdict, conclude
from rich.console import Console

from actors.local_cluster import RUNTIME_ENVIRONMENTS, living
from atoll.client import AtollClient
from atoll.demo import SHAPE, control_plane
from atoll.demo_view import DemoView

BAR = 0.7
JOB = Path(__file__).resolve().parent.parent / "examples" / "demo.yaml"
WORLD_SIZE = 8
PATIENCE_S = 300.0


def job() -> dict[str, Any]:
    """The demo's job, three steps long, evaluated once at its end."""
    document: dict[str, Any] = yaml.safe_load(JOB.read_text())
    document["name"] = "startup"
    optimizer = {**document["training"].get("optimizer", {}), "warmup_steps": 0}
    document["training"] = {**document["training"], "steps": 3, "eval_every": 0, "optimizer": optimizer}
    document["checkpoint"] = {**document.get("checkpoint", {}), "every": 0}
    return document


def wait_until_free(client: AtollClient, slots: int = WORLD_SIZE) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while client.cluster().free_slots < slots:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{slots} slots are not free after {PATIENCE_S:.0f} s")
        time.sleep(0.1)


def under_atoll(document: dict[str, Any], client: AtollClient) -> float:
    """Seconds from submit to the first finished step."""
    wait_until_free(client)
    began_at = time.time()
    submitted = client.submit(document)
    ended = client.wait(submitted.id, timeout_s=PATIENCE_S)
    if ended.state != "succeeded":
        raise RuntimeError(f"the job under Atoll {ended.state}: {ended.message}")
    first = next(metric for metric in client.all_metrics(submitted.id) if metric.step == 1)
    wait_until_free(client)
    return first.at.timestamp() - began_at


def under_ray_train(document: dict[str, Any]) -> float:
    """Seconds from the call of `fit` to the first finished step."""
    run = ray_train.Run(document, WORLD_SIZE)
    run.start()
    first = run.wait_for_step(at_least=1, patience_s=PATIENCE_S)
    run.finish(PATIENCE_S)
    return float(first["at"]) - run.began_at


def main() -> int:
    parser = argparse.ArgumentParser(description="submit to first step: Atoll over Ray Train")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=1, help="pairs that do not count")
    options = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # for Ray Train's workers, which inherit it from the raylets
    os.environ[RUNTIME_ENVIRONMENTS] = "1"  # Ray Train asks for them
    document = job()
    samples = []
    with (
        tempfile.TemporaryDirectory(prefix="atoll-startup-") as directory,
        control_plane(Path(directory), DemoView(Console(stderr=True))) as client,
    ):
        cluster = living(Path(directory))
        if cluster is None:
            raise RuntimeError("the local cluster is gone")
        with ray_train.driver(cluster.address):
            for number in range(-options.warmup, options.pairs):
                pair = {"atoll_s": under_atoll(document, client), "ray_train_s": under_ray_train(document)}
                counted = number >= 0
                samples.append({**pair, "ratio": pair["atoll_s"] / pair["ray_train_s"], "counted": counted})
                print(
                    f"{'pair' if counted else 'warm-up'}: Atoll {pair['atoll_s']:.2f} s, "
                    f"Ray Train {pair['ray_train_s']:.2f} s, ratio {samples[-1]['ratio']:.3f}",
                    flush=True,
                )
    ratio = statistics.median(sample["ratio"] for sample in samples if sample["counted"])
    return conclude(
        Verdict("startup", "ratio", ratio, BAR, at_least=False),
        setting={"job": document, "cluster": SHAPE, **vars(options)},
        samples=samples,
    )


if __name__ == "__main__":
    sys.exit(main())
