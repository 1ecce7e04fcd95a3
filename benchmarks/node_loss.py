"""From the loss of a node, with a spare under its leaf, to the next finished step: Atoll against Ray Train.

Same train function, checkpoints and world size. A pair has a cluster of its own, for a raylet that was killed does not
come back: four nodes of two slots under one leaf. Atoll's job of four ranks loses one of its two nodes; then Ray
Train's, on the three nodes that are left, likewise. Both have room for the whole job after the loss.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray_train
from recovery import KILL_AFTER_STEP, job, under_atoll, under_ray_train
from report import Verdict, conclude
from rich.console import Console

from actors.local_cluster import RUNTIME_ENVIRONMENTS, LocalCluster, living
from atoll.answers import Rank
from atoll.demo import control_plane
from atoll.demo_view import DemoView

BAR = 0.3
SHAPE = "1x4x2"
WORLD_SIZE = 4
VICTIM = 3
"""Its node is killed: not that of rank 0, whose clock is read."""


def four_ranks() -> dict[str, Any]:
    """The job of `recovery.py` as tp 2 x dp 2."""
    return {**job(), "name": "node-loss", "parallelism": {"tp": 2, "dp": 2, "microbatches": 2}}


def pair(document: dict[str, Any]) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="atoll-node-loss-") as directory,
        control_plane(Path(directory), DemoView(Console(stderr=True)), SHAPE) as client,
    ):
        cluster = living(Path(directory))
        if cluster is None:
            raise RuntimeError("the local cluster is gone")

        def kill_node_of_atoll(ranks: Sequence[Rank]) -> None:
            os.kill(cluster.raylets[ranks[VICTIM].node], signal.SIGKILL)

        def kill_node_of_ray_train(run: ray_train.Run) -> None:
            os.kill(raylet_of(cluster, run.pid(VICTIM)), signal.SIGKILL)

        atoll_s = under_atoll(
            document, client, kill=kill_node_of_atoll, free_before=2 * WORLD_SIZE, free_after=6
        )
        with ray_train.driver(cluster.address):
            ray_train_s = under_ray_train(document, kill=kill_node_of_ray_train, world_size=WORLD_SIZE)
    return {"atoll_s": atoll_s, "ray_train_s": ray_train_s, "ratio": atoll_s / ray_train_s}


def raylet_of(cluster: LocalCluster, pid: int) -> int:
    """The raylet that a worker is a child of."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])  # proc_pid_stat(5)
    if parent not in cluster.raylets.values():
        raise RuntimeError(f"process {pid} is no child of a raylet of the cluster")
    return parent


def main() -> int:
    parser = argparse.ArgumentParser(description="loss of a node to the next step: Atoll over Ray Train")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # for Ray Train's workers, which inherit it from the raylets
    os.environ[RUNTIME_ENVIRONMENTS] = "1"  # Ray Train asks for them
    document = four_ranks()
    samples = []
    for number in range(1, options.pairs + 1):
        samples.append(pair(document))
        print(
            f"pair {number} of {options.pairs}: Atoll {samples[-1]['atoll_s']:.2f} s, "
            f"Ray Train {samples[-1]['ray_train_s']:.2f} s, ratio {samples[-1]['ratio']:.3f}",
            flush=True,
        )
    ratio = statistics.median(sample["ratio"] for sample in samples)
    return conclude(
        Verdict("node_loss", "ratio", ratio, BAR, at_least=False),
        setting={
            "job": document,
            "cluster": SHAPE,
            "node_of_rank": VICTIM,
            "killed_after_step": KILL_AFTER_STEP,
            **vars(options),
        },
        samples=samples,
    )


if __name__ == "__main__":
    sys.exit(main())
