"""One outage of a job: from its first failure, or from the moment that its ranks were asked to make way, to the first
step that was finished after it, and how it was repaired."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Outage:
    """Times are UTC seconds since 1970 by the clocks of those who told."""

    began_at: float
    rungs: list[str] = field(default_factory=list)
    """Rungs of the ladder that were taken: several when a repair failed."""
    lost: set[str] = field(default_factory=set)
    """Nodes lost since it began: none of them is asked for again."""
    ready_at: float | None = None
    planned: bool = False
    """Nothing failed: the ranks of a slow node go elsewhere."""

    def seconds(self, at: float) -> float:
        return round(max(0.0, at - self.began_at), 3)

    def summary(self, step: int, at: float) -> tuple[str, dict[str, Any]]:
        """The sentence and the data of the event that ends it, with step `step` finished `at`."""
        ready_s = self.seconds(self.ready_at if self.ready_at is not None else at)
        data: dict[str, Any] = {
            "rungs": self.rungs,
            "seconds": self.seconds(at),
            "ready_s": ready_s,
            "step": step,
            "planned": self.planned,
        }
        how = ", then ".join(self.rungs)
        done, since = ("Replaced", "the ranks were asked") if self.planned else ("Repaired", "the failure")
        sentence = (
            f"{done} ({how}): step {step} was finished {data['seconds']:.1f} s after {since}, "
            f"all ranks were ready after {ready_s:.1f} s."
        )
        return sentence, data
