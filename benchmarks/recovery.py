"""From SIGKILL of one rank to the next finished step: Atoll against Ray Train with FailureConfig, turn by turn.

Same train function, checkpoints, world size and local cluster. On both sides the same rank is killed after the same
step; the time ends with the first step that rank 0 of the repaired gang has finished, by its own clock.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray_train
import yaml
from report import Verdict, conclude
from rich.console import Console
from startup import JOB, PATIENCE_S, WORLD_SIZE, wait_until_free

from actors.local_cluster import RUNTIME_ENVIRONMENTS, living
from atoll.answers import Rank
from atoll.client import AtollClient
from atoll.demo import SHAPE, control_plane
from atoll.demo_view import DemoView

BAR = 0.3
KILL_AFTER_STEP = 12
VICTIM = 5


def job() -> dict[str, Any]:
    """The demo's job, long, saved every five steps, never evaluated while it runs."""
    document: dict[str, Any] = yaml.safe_load(JOB.read_text())
    document["name"] = "recovery"
    document["training"] = {**document["training"], "steps": 5000, "eval_every": 0}
    document["checkpoint"] = {**document.get("checkpoint", {}), "every": 5}
    return document


def kill_rank(ranks: Sequence[Rank]) -> None:
    """SIGKILL to the victim of an Atoll job."""
    pid = ranks[VICTIM].pid
    if pid is None:
        raise RuntimeError(f"rank {VICTIM} of the running job has no pid")
    os.kill(pid, signal.SIGKILL)


def under_atoll(
    document: dict[str, Any],
    client: AtollClient,
    *,
    kill: Callable[[Sequence[Rank]], None] = kill_rank,
    free_before: int = WORLD_SIZE,
    free_after: int = WORLD_SIZE,
) -> float:
    """Seconds from the kill to the next finished step. So many slots are free before the job and after it."""
    wait_until_free(client, free_before)
    submitted = client.submit(document)
    deadline = time.monotonic() + PATIENCE_S
    cursor, killed_at = 0, None
    while time.monotonic() < deadline:
        for metric in client.all_metrics(submitted.id, after=cursor):
            cursor = metric.id
            if killed_at is not None and metric.attempt > 1:
                client.cancel(submitted.id)
                client.wait(submitted.id, timeout_s=PATIENCE_S)
                wait_until_free(client, free_after)
                return metric.at.timestamp() - killed_at
            if killed_at is None and metric.step >= KILL_AFTER_STEP:
                placement = client.job(submitted.id).placement
                if placement is None:
                    raise RuntimeError("the running job has no placement")
                killed_at = time.time()
                kill(placement.ranks)
        time.sleep(0.05)
    raise TimeoutError(f"Atoll: no step after the kill within {PATIENCE_S:.0f} s")


def under_ray_train(
    document: dict[str, Any],
    *,
    kill: Callable[[ray_train.Run], None] = lambda run: os.kill(run.pid(VICTIM), signal.SIGKILL),
    world_size: int = WORLD_SIZE,
) -> float:
    """Seconds from the kill to the next finished step."""
    run = ray_train.Run(document, world_size, max_failures=3)
    run.start()
    before = run.wait_for_step(at_least=KILL_AFTER_STEP, patience_s=PATIENCE_S)
    killed_at = time.time()
    kill(run)
    after = run.wait_for_step(at_least=1, not_pid=before["pid"], patience_s=PATIENCE_S)
    run.finish(PATIENCE_S)
    return float(after["at"]) - killed_at


def main() -> int:
    parser = argparse.ArgumentParser(description="kill of a rank to the next step: Atoll over Ray Train")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # for Ray Train's workers, which inherit it from the raylets
    os.environ[RUNTIME_ENVIRONMENTS] = "1"  # Ray Train asks for them
    document = job()
    samples = []
    with (
        tempfile.TemporaryDirectory(prefix="atoll-recovery-") as directory,
        control_plane(Path(directory), DemoView(Console(stderr=True))) as client,
    ):
        cluster = living(Path(directory))
        if cluster is None:
            raise RuntimeError("the local cluster is gone")
        with ray_train.driver(cluster.address):
            for number in range(1, options.pairs + 1):
                atoll_s, ray_train_s = under_atoll(document, client), under_ray_train(document)
                samples.append(
                    {"atoll_s": atoll_s, "ray_train_s": ray_train_s, "ratio": atoll_s / ray_train_s}
                )
                print(
                    f"pair {number} of {options.pairs}: Atoll {atoll_s:.2f} s, Ray Train {ray_train_s:.2f} s, "
                    f"ratio {atoll_s / ray_train_s:.3f}",
                    flush=True,
                )
    ratio = statistics.median(sample["ratio"] for sample in samples)
    return conclude(
        Verdict("recovery", "ratio", ratio, BAR, at_least=False),
        setting={
            "job": document,
            "cluster": SHAPE,
            "killed_rank": VICTIM,
            "killed_after_step": KILL_AFTER_STEP,
            **vars(options),
        },
        samples=samples,
    )


if __name__ == "__main__":
    sys.exit(main())
