"""The other side of `startup.py` and `recovery.py`: Atoll's rank program under Ray Train's TorchTrainer.

Ray Train gets the same train function, world size and cluster, and its defaults otherwise. Nothing is reported to Ray
Train while training, which spares it the barrier that its `report` is. Rank 0 writes the time of each finished step to
a file; the reader is on the same machine and clock.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

POLL_S = 0.02


@contextmanager
def driver(address: str) -> Iterator[None]:
    """This process as a Ray driver of the local cluster at `address`, with Ray Train imported."""
    from actors import ray_environment

    ray_environment.prepare(local=True)
    import ray
    import ray.train.torch

    ray.init(
        address=address,
        namespace="ray-train",
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address=address.rpartition(":")[0],
    )
    try:
        yield
    finally:
        ray.shutdown()


class FileReporter:
    """Reports of one rank, as lines of a file; ends the training when the stop file is there."""

    def __init__(self, directory: Path) -> None:
        self._steps = directory / "steps.jsonl"
        self._stop = directory / "stop"

    def ready(self) -> None:
        """Nobody to wait for."""

    def step(self, record: Mapping[str, Any]) -> None:
        line = {"at": time.time(), "pid": os.getpid(), "step": record["step"], "loss": record["loss"]}
        with self._steps.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def event(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Events are not part of what is measured."""

    def should_stop(self) -> bool:
        return self._stop.exists()


def train_loop(config: Mapping[str, Any]) -> None:
    """What every worker of Ray Train runs: Atoll's `train`, in the process group that Ray Train has made."""
    import ray.train

    from actors.training.context import RankContext
    from actors.training.loop import train
    from orchestrator.spec.parse import parse_spec

    spec = parse_spec(config["spec"])
    ranks = ray.train.get_context()
    directory = Path(config["directory"])
    rank = ranks.get_world_rank()
    (directory / f"rank-{rank}.pid").write_text(str(os.getpid()))

    def no_store() -> Any:
        raise RuntimeError("Ray Train made no process group")

    train(
        spec,
        RankContext(
            rank=rank,
            world_size=ranks.get_world_size(),
            attempt=1,
            incarnation=1,
            job_directory=directory,
            store=no_store,
            reporter=FileReporter(directory),
            timeout=timedelta(seconds=spec.recovery.step_timeout_s),
        ),
    )


@dataclass
class Run:
    """One `fit` in a thread of its own."""

    document: Mapping[str, Any]
    world_size: int
    max_failures: int = 0
    directory: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="atoll-ray-train-")))
    began_at: float = 0.0
    error: BaseException | None = None

    def start(self) -> None:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer

        trainer = TorchTrainer(
            train_loop,
            train_loop_config={"spec": dict(self.document), "directory": str(self.directory)},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=self.world_size, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                storage_path=str(self.directory / "storage"),
                failure_config=FailureConfig(max_failures=self.max_failures),
            ),
        )

        def fit() -> None:
            try:
                trainer.fit()
            except BaseException as error:  # told by wait_for_step and finish
                self.error = error

        self._thread = threading.Thread(target=fit, daemon=True)
        self.began_at = time.time()
        self._thread.start()

    def steps(self) -> list[dict[str, Any]]:
        path = self.directory / "steps.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]

    def wait_for_step(
        self, *, at_least: int, not_pid: int | None = None, patience_s: float
    ) -> dict[str, Any]:
        """The first finished step numbered `at_least` or more, by a rank 0 other than `not_pid`."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            for line in self.steps():
                if line["step"] >= at_least and line["pid"] != not_pid:
                    return line
            if not self._thread.is_alive():
                raise RuntimeError(f"Ray Train ended before step {at_least}: {self.error}")
            time.sleep(POLL_S)
        raise TimeoutError(f"Ray Train: no step {at_least} within {patience_s:.0f} s")

    def pid(self, rank: int) -> int:
        return int((self.directory / f"rank-{rank}.pid").read_text())

    def finish(self, patience_s: float) -> None:
        """Lets the training end at its next step, waits for `fit` and removes the directory of the run."""
        (self.directory / "stop").touch()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            raise TimeoutError(f"Ray Train did not end within {patience_s:.0f} s")
        if self.error is not None:
            raise RuntimeError("Ray Train failed") from self.error
        shutil.rmtree(self.directory, ignore_errors=True)
