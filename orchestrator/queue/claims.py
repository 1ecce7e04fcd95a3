"""What the queue knows of a job: what it asks for, how long it has waited, what it holds.

Times are seconds of one clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from orchestrator.placement.room import Holding
from orchestrator.spec.job import JobSpec


@dataclass(frozen=True, slots=True)
class Claim:
    """What a job asks of the queue."""

    job_id: str
    name: str
    project: str
    priority: int
    size: int
    """Accelerators: all of them or none."""
    time_limit_s: float | None
    """Longest time it may hold accelerators, over all its placements; None: no limit."""
    preemptible: bool
    grace_s: float
    """Time it is given to save a checkpoint before it has to go."""

    @classmethod
    def of(cls, job_id: str, spec: JobSpec) -> Claim:
        asked = spec.queue
        return cls(
            job_id=job_id,
            name=spec.name,
            project=asked.project,
            priority=asked.priority,
            size=spec.parallelism.world_size,
            time_limit_s=asked.time_limit_s,
            preemptible=asked.preemptible,
            grace_s=asked.grace_s,
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    claim: Claim
    submitted_s: float
    waited_s: float
    """Time in the queue so far, that before earlier placements included."""
    held_s: float = 0.0
    """Time it held accelerators in earlier placements."""

    @property
    def longest_s(self) -> float:
        """Longest time it can hold accelerators if it starts now, grace included; infinite without a limit."""
        limit_s = self.claim.time_limit_s
        return math.inf if limit_s is None else max(0.0, limit_s - self.held_s) + self.claim.grace_s


@dataclass(frozen=True, slots=True)
class Running:
    claim: Claim
    holding: Holding
    placed_s: float
    held_s: float
    """Time it held accelerators in earlier placements."""
    waited_s: float
    """Time it spent in the queue before this placement and earlier ones."""
    leaving: bool
    """It has ended, or was asked to: its accelerators are free soon."""

    @property
    def limit_s(self) -> float:
        """When its time limit is reached; infinite without one."""
        limit_s = self.claim.time_limit_s
        return math.inf if limit_s is None else self.placed_s + max(0.0, limit_s - self.held_s)

    @property
    def ends_s(self) -> float:
        """When its accelerators are free at the latest; infinite when nothing says so."""
        return -math.inf if self.leaving else self.limit_s + self.claim.grace_s
