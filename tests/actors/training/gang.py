"""Ranks for tests: processes forked from this one, which has torch imported, over gloo on the loopback interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from actors.training import local_gang
from actors.training.context import RankContext
from actors.training.local_gang import RankFailedError as RankFailedError

# One thread here too: a process with an OpenMP pool must not be forked.
torch.set_num_threads(1)

DEADLINE_S = 240.0


@dataclass
class FakeReporter:
    """Keeps what it is told; asks to stop once `stop_after` steps are reported."""

    steps: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    readies: int = 0
    stop_after: int | None = None
    asked: int = 0

    def ready(self) -> None:
        self.readies += 1

    def step(self, record: Mapping[str, Any]) -> None:
        self.steps.append(dict(record))

    def event(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        self.events.append((kind, message, dict(data or {})))

    def should_stop(self) -> bool:
        self.asked += 1
        return self.stop_after is not None and self.asked >= self.stop_after

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [data for found, _, data in self.events if found == kind]


def run_ranks(world: int, program: Callable[[int, Callable[[], dist.Store]], Any]) -> list[Any]:
    """Runs `program(rank, store)` in `world` forked processes; returns what each returned, by rank."""
    return local_gang.run_ranks(world, program, deadline_s=DEADLINE_S)


def context(
    rank: int,
    world: int,
    store: Callable[[], dist.Store],
    directory: Path,
    *,
    reporter: FakeReporter,
    attempt: int = 1,
) -> RankContext:
    return RankContext(
        rank=rank,
        world_size=world,
        attempt=attempt,
        incarnation=1,
        job_directory=directory,
        store=store,
        reporter=reporter,
        timeout=timedelta(seconds=120),
    )
