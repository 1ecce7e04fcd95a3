"""Seconds of communication in a step, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.spec.sections import Tier

HIDDEN_SHARE = 0.05
"""What a second of hidden communication costs: it takes memory bandwidth and cores from the compute it hides behind.
Small, so that it decides between mappings that hide everything and hardly otherwise."""


@dataclass(frozen=True, slots=True)
class AxisCost:
    axis: str
    seconds: float
    """Of communication in a step, hidden or not."""
    by_tier: tuple[tuple[Tier, float], ...]
    """Seconds on the links of each tier, of the rank that sends longest."""
    widest: Tier
    uplink: str | None = None
    """The uplink that is the bottleneck: `leaf l0`; None when the rank's own link is."""
    overlapped: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """Communication of a step."""

    axes: tuple[AxisCost, ...]
    hidden_s: float
    """Backward that overlapped axes can hide behind."""

    @property
    def seconds(self) -> float:
        """What a placement is judged by: exposed seconds, and a little for hidden ones."""
        return combined(
            sum(axis.seconds for axis in self.axes if not axis.overlapped),
            sum(axis.seconds for axis in self.axes if axis.overlapped),
            self.hidden_s,
        )

    @property
    def exposed_s(self) -> float:
        overlapped = sum(axis.seconds for axis in self.axes if axis.overlapped)
        return sum(a.seconds for a in self.axes if not a.overlapped) + max(0.0, overlapped - self.hidden_s)


def combined(exposed_s: float, overlapped_s: float, hidden_s: float) -> float:
    """Grows with both."""
    return exposed_s + max(0.0, overlapped_s - hidden_s) + HIDDEN_SHARE * min(overlapped_s, hidden_s)
