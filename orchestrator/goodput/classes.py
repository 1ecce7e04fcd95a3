"""The classes of GPU time, and sums of them that are exact: whole microseconds, no rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Spent(StrEnum):
    """What a GPU-second was spent on; the order is that of a waterfall."""

    USEFUL_COMPUTE = "useful-compute"
    """Computing of steps that count: that were not trained again later."""
    EXPOSED_COMMUNICATION = "exposed-communication"
    """Waiting for other ranks, pipeline apart."""
    BUBBLE = "bubble"
    """Waiting along the pipeline."""
    DATA_WAIT = "data-wait"
    CHECKPOINT_STALL = "checkpoint-stall"
    LOST_WORK = "lost-work"
    """Steps that were trained again from a checkpoint before them, and the step that a fault broke off."""
    DETECTION = "detection"
    """From where the broken step should have ended until the fault was told."""
    REPAIR = "repair"
    """From there until training went on."""
    DEGRADED = "degraded"
    """GPUs that were asked for and not there while the job ran on with fewer."""
    IDLE_SPARE = "idle-spare"
    START = "start"
    """From a placement to the first step's begin, before anything went wrong."""
    QUEUED = "queued"
    """GPUs that were asked for, while the job waited for them."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """GPU-microseconds by class. Adds up: `total_us` is nothing but the sum."""

    gpu_us: Mapping[Spent, int]

    @property
    def total_us(self) -> int:
        return sum(self.gpu_us.values())

    @property
    def goodput(self) -> float:
        """Share of useful compute in all GPU time; 0 when there was none."""
        return self.gpu_us.get(Spent.USEFUL_COMPUTE, 0) / self.total_us if self.total_us else 0.0

    def to_json(self) -> dict[str, Any]:
        """GPU-seconds to the microsecond, by class; every class is there."""
        return {
            "gpu_seconds": {spent.value: self.gpu_us.get(spent, 0) / 1e6 for spent in Spent},
            "total_gpu_seconds": self.total_us / 1e6,
            "goodput": self.goodput,
        }


def together(ledgers: Iterable[Ledger]) -> Ledger:
    """The ledger of several jobs, as of a cluster."""
    found = dict.fromkeys(Spent, 0)
    for ledger in ledgers:
        for spent, gpu_us in ledger.gpu_us.items():
            found[spent] += gpu_us
    return Ledger(found)
