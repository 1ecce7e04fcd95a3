"""The classes of GPU time, and sums of them that are exact: whole microseconds, no rounding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Spent(StrEnum):
    """What a GPU-second was spent on; the order is that of a waterfall, from what is useful to what was not held."""

    USEFUL_COMPUTE = "useful-compute"
    """Computing of steps that count, and evaluations: what is left of a step without its waits."""
    EXPOSED_COMMUNICATION = "exposed-communication"
    """Waiting for other ranks, pipeline apart."""
    BUBBLE = "bubble"
    """Waiting along the pipeline."""
    DATA_WAIT = "data-wait"
    CHECKPOINT_STALL = "checkpoint-stall"
    """Steps held up by a save, and the last save, for which an attempt waits before it ends."""
    LOST_WORK = "lost-work"
    """Steps that nothing is left of, and the step that a fault broke off."""
    DETECTION = "detection"
    """From where the broken step should have ended until the fault was told and its cause was settled."""
    REPAIR = "repair"
    """From there until the first step began."""
    IDLE_SPARE = "idle-spare"
    START = "start"
    """Bringing the job up, from a placement to the first step's begin, and taking it down, until its slots are free."""
    DEGRADED = "degraded"
    """GPUs that were asked for and not there while the job ran on with fewer."""
    QUEUED = "queued"
    """GPUs that were asked for, while the job held none."""


NOT_HELD = frozenset({Spent.DEGRADED, Spent.QUEUED})
"""What was asked for and missing. All other classes are time of GPUs that the job held."""
IN_STEPS = (Spent.USEFUL_COMPUTE, Spent.EXPOSED_COMMUNICATION, Spent.BUBBLE, Spent.DATA_WAIT)
"""Time of steps that count: productive time as in arXiv 2410.21680."""
WAITS = (Spent.EXPOSED_COMMUNICATION, Spent.BUBBLE, Spent.DATA_WAIT, Spent.CHECKPOINT_STALL)
"""What a step waits for, in the order in which its time is cut."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """GPU-microseconds by class. Adds up: `total_us` is nothing but the sum."""

    gpu_us: Mapping[Spent, int]
    steps_us: int = 0
    """GPU time of finished steps that count."""
    blind_us: Mapping[Spent, int] = field(default_factory=dict)
    """By wait: of that, steps in which nobody measured it; it lies in useful compute."""

    @property
    def total_us(self) -> int:
        return sum(self.gpu_us.values())

    @property
    def held_us(self) -> int:
        """Of GPUs that the job held."""
        return sum(gpu_us for spent, gpu_us in self.gpu_us.items() if spent not in NOT_HELD)

    @property
    def goodput(self) -> float:
        """Share of useful compute in the time of held GPUs; 0 when none were."""
        return self.gpu_us.get(Spent.USEFUL_COMPUTE, 0) / self.held_us if self.held_us else 0.0

    @property
    def ettr(self) -> float:
        """Effective training time ratio: steps that count, waits included, of all time since the submission; 0 when
        there was none."""
        in_steps = sum(self.gpu_us.get(spent, 0) for spent in IN_STEPS)
        return in_steps / self.total_us if self.total_us else 0.0

    def gpu_seconds(self, spent: Spent) -> float | None:
        """None for a wait that was measured in no step though there were steps: nobody knows, and 0 would be a lie."""
        gpu_us = self.gpu_us.get(spent, 0)
        unknown = not gpu_us and 0 < self.steps_us <= self.blind_us.get(spent, 0)
        return None if unknown else gpu_us / 1e6

    def to_json(self) -> dict[str, Any]:
        """GPU-seconds to the microsecond, by class; every class is there, None where nobody measured it."""
        return {
            "gpu_seconds": {spent.value: self.gpu_seconds(spent) for spent in Spent},
            "unmeasured_gpu_seconds": {
                spent.value: self.blind_us[spent] / 1e6 for spent in WAITS if self.blind_us.get(spent)
            },
            "held_gpu_seconds": self.held_us / 1e6,
            "total_gpu_seconds": self.total_us / 1e6,
            "goodput": self.goodput,
            "ettr": self.ettr,
        }


def together(ledgers: Iterable[Ledger]) -> Ledger:
    """The ledger of several jobs, as of a cluster."""
    found, blind, steps_us = dict.fromkeys(Spent, 0), dict.fromkeys(WAITS, 0), 0
    for ledger in ledgers:
        steps_us += ledger.steps_us
        for spent, gpu_us in ledger.gpu_us.items():
            found[spent] += gpu_us
        for spent, gpu_us in ledger.blind_us.items():
            blind[spent] += gpu_us
    return Ledger(found, steps_us, blind)
