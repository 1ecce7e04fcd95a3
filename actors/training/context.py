"""What a rank program is given by whoever launched it: Atoll's rank process, torchrun, or a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import torch.distributed as dist

from actors.pulse import Pulse
from actors.step_ring import StepRing


class Reporter(Protocol):
    """Where a rank program reports to. Calls return at once and never raise for a receiver that is gone."""

    def ready(self) -> None:
        """Built and connected; blocks until the gang may begin (certificate made), then returns."""

    def step(self, record: Mapping[str, Any]) -> None:
        """A finished step: step, loss, grad_norm, learning_rate, tokens, step_time_s. Rank 0 alone calls it."""

    def event(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """An event of the job's history (`EventKind` value), said by one rank."""

    def should_stop(self) -> bool:
        """True once the launcher wants the program to end at the next step."""


@dataclass(frozen=True)
class RankContext:
    rank: int
    world_size: int
    attempt: int
    incarnation: int
    job_directory: Path
    """Shared storage of the job; checkpoints lie in `checkpoints/` below it unless the spec names a directory."""
    store: Callable[[], dist.Store]  # type: ignore[name-defined]
    """Makes the rendezvous store of this attempt."""
    reporter: Reporter
    timeout: timedelta
    """Deadline of every collective of this job."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    pulse: Pulse = field(default_factory=Pulse)
    """Where the program says how far it is."""
    phases: StepRing = field(default_factory=StepRing)
    """Where it leaves what each of its steps was made of."""
