"""Where a job would run, and what that would cost."""

from __future__ import annotations

from api.schemas.estimates import EstimateView, SearchView
from api.schemas.jobs import AxisCostView, AxisView, Body, RankView


class PlanAnswer(Body):
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
    costs: list[AxisCostView]
    """Communication of a step by axis as placed; empty when the job does not fit or its traffic is not known."""
    ever: bool
    """False when the job cannot fit even on the empty cluster."""
    estimate: EstimateView | None
    """Null when the cost is not known; `notes` says why."""
    search: SearchView | None
    """With `auto`: the fastest plans for this job."""
    notes: list[str]
    """What the estimate takes for granted, or why there is none."""
