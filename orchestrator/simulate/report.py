"""What a simulation measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 95, 99, 100)


@dataclass
class Gauge:
    """Sums over time of what is held, alive and free; accelerator-seconds."""

    begin_s: float
    end_s: float
    """The window: from the first submission to the last; to the end where all were submitted before it begins."""
    at_s: float = 0.0
    held: float = 0.0
    alive: float = 0.0
    free: float = 0.0
    free_on_broken: float = 0.0
    """Free accelerators on islands of which a part is held."""

    def advance(self, now_s: float, *, held: int, alive: int, free: int, free_on_broken: int) -> None:
        """What was so since the last call; counts of accelerators."""
        lasted_s = max(0.0, min(now_s, self.end_s) - max(self.at_s, self.begin_s))
        self.at_s = now_s
        self.held += held * lasted_s
        self.alive += alive * lasted_s
        self.free += free * lasted_s
        self.free_on_broken += free_on_broken * lasted_s


@dataclass
class Tally:
    """Sums over jobs."""

    starts: int = 0
    passed: int = 0
    """Starts of jobs that passed one that had to wait."""
    preemptions: int = 0
    time_limits: int = 0
    node_losses: int = 0
    """Gangs that lost a node."""
    pipelines: int = 0
    """Pipelines of more than one stage, over all placements."""
    cross_leaf: int = 0
    """Those of them that lie under several leaves, or under an unknown one."""
    held_s: float = 0.0
    """Accelerator-seconds that jobs held; of those that a snapshot shows running, from their newest checkpoint on."""
    useful_s: float = 0.0
    """Those of them in which work was done that was kept."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    job_id: str
    name: str
    state: str
    message: str
    waited_s: float | None
    """From its submission to its first start; null: it never started."""
    completed_s: float | None
    """From its submission to its end."""
    placements: int
    nodes: Sequence[str] = ()
    """Where it ran last."""


@dataclass(frozen=True, slots=True)
class Report:
    policy: str
    seed: int
    accelerators: int
    jobs: int
    states: Mapping[str, int]
    wait_s: Mapping[str, float]
    """Percentiles over all jobs that started."""
    completion_s: Mapping[str, float]
    """Percentiles over all jobs that succeeded."""
    makespan_s: float
    utilisation: float
    """Held / alive accelerator-seconds from the first submission to the last."""
    fragmentation: float
    """Free accelerators on islands that are partly held / free accelerators, over the same time."""
    cross_leaf_share: float
    goodput: float
    """Useful / held accelerator-seconds of all jobs."""
    tally: Mapping[str, float]
    solves: int
    """Questions asked of the solver."""
    outcomes: Sequence[JobOutcome] = field(default_factory=tuple)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """`mean`, `p50` ... `p99` and `max`, rounded to milliseconds; empty without values."""
    if not values:
        return {}
    found = np.percentile(np.asarray(values), PERCENTILES, method="inverted_cdf")
    names = [f"p{p}" if p < 100 else "max" for p in PERCENTILES]
    return {"mean": round(float(np.mean(values)), 3)} | {
        name: round(float(value), 3) for name, value in zip(names, found, strict=True)
    }


def share(part: float, whole: float) -> float:
    return round(part / whole, 6) if whole else 0.0
