"""`python -m actors.training JOB.yaml --directory DIR`: the rank program alone or under torchrun.

Prints JSON lines on rank 0: `{"step": ...}` for steps, `{"event": ...}` for events. Reads the variables that torchrun
gives a rank (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT); without them it is a world of one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from actors.training.context import RankContext
from actors.training.loop import train
from orchestrator.spec import InvalidSpecError, JobSpec
from orchestrator.spec.parse import read_spec


class JsonLinesReporter:
    """Reports to standard output. SIGTERM asks the program to stop at the next step."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def ready(self) -> None:
        """Nobody to wait for: the ranks have found each other already."""

    def step(self, record: Mapping[str, Any]) -> None:
        self._print(record)

    def event(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        self._print({"event": kind, "message": message, "data": dict(data or {})})

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        self._stop.set()

    def _print(self, record: Mapping[str, Any]) -> None:
        print(json.dumps(record), flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m actors.training", description="Train a job file on these ranks."
    )
    parser.add_argument("job", type=Path, help="job file, YAML or JSON")
    parser.add_argument(
        "--directory", type=Path, required=True, help="shared directory of the job (checkpoints)"
    )
    parser.add_argument("--threads", type=int, default=None, help="torch threads of each rank")
    options = parser.parse_args(arguments)
    try:
        spec = read_spec(options.job.read_text(), origin=str(options.job))
    except OSError as error:
        print(f"{options.job}: {error.strerror}", file=sys.stderr)
        return 2
    except InvalidSpecError as error:
        for violation in error.violations:
            print(f"{options.job}: {violation.field}: {violation.message}", file=sys.stderr)
        return 2
    reporter = JsonLinesReporter()
    signal.signal(signal.SIGTERM, lambda *_: reporter.stop())
    train(spec, _context(spec, reporter, options.directory, options.threads))
    return 0


def _context(spec: JobSpec, reporter: JsonLinesReporter, directory: Path, threads: int | None) -> RankContext:
    given = os.environ
    rank, world_size = int(given.get("RANK", "0")), int(given.get("WORLD_SIZE", "1"))
    attempt = int(given.get("TORCHELASTIC_RESTART_COUNT", "0"))
    timeout = timedelta(seconds=spec.recovery.step_timeout_s)

    def store() -> dist.Store:  # type: ignore[name-defined]
        if world_size == 1:
            return dist.HashStore()  # type: ignore[attr-defined]
        # torchrun's agent hosts the store already; every rank is its client.
        hosted = given.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        tcp = dist.TCPStore(  # type: ignore[attr-defined]
            given["MASTER_ADDR"],
            int(given["MASTER_PORT"]),
            world_size,
            is_master=rank == 0 and not hosted,
            timeout=timeout,
        )
        return dist.PrefixStore(f"atoll/{attempt}", tcp)  # type: ignore[attr-defined]

    return RankContext(
        rank=rank,
        world_size=world_size,
        attempt=attempt,
        incarnation=0,
        job_directory=directory.absolute(),
        store=store,
        reporter=reporter,
        timeout=timeout,
        extras={"local_index": int(given.get("LOCAL_RANK", "0"))}
        | ({} if threads is None else {"threads": threads}),
    )


if __name__ == "__main__":
    sys.exit(main())
