"""Where a job would run, and what that would cost."""

from __future__ import annotations

from typing import Any

from api.schemas.estimates import EstimateView, SearchView
from api.schemas.jobs import AxisView, Body, RankView


class PlacedAxisCost(Body):
    """What one axis sends in a step, in seconds, as estimated from the plan's bytes and the links of its placement."""

    axis: str
    seconds: float
    by_tier: dict[str, float]
    """Seconds on the links of each tier, of the rank that sends longest."""
    widest: str
    uplink: str | None
    """The uplink that is the bottleneck; null when the rank's own link is."""
    overlapped: bool
    """Sent while backward computes."""


class PlanAnswer(Body):
    spec: dict[str, Any]
    """The job as it was read, with every default."""
    fits: bool
    plan: str
    world_size: int
    ranks: list[RankView]
    axes: list[AxisView]
    explanation: list[str]
    refusal: str | None
    """What is missing and where; null when the job fits now."""
    refusal_details: list[str]
    changes: list[str]
    """One sentence for each single change of the job with which it would fit now, smallest first."""
    costs: list[PlacedAxisCost]
    """Communication of a step by axis as placed; empty when the job does not fit or its traffic is not known."""
    ever: bool
    """False when the job cannot fit even on the empty cluster."""
    estimate: EstimateView | None
    """Null when the cost is not known; `notes` says why."""
    search: SearchView | None
    """With `auto`: the fastest plans for this job."""
    notes: list[str]
    """What the estimate takes for granted, or why there is none."""
