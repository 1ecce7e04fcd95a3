"""Where a job would run, and what that would cost."""

from __future__ import annotations

from api.schemas.estimates import EstimateView, SearchView
from api.schemas.jobs import AxisView, Body, RankView


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
    ever: bool
    """False when the job cannot fit even on the empty cluster."""
    estimate: EstimateView | None
    """Null when the cost is not known; `notes` says why."""
    search: SearchView | None
    """With `auto`: the fastest plans for this job."""
    notes: list[str]
    """What the estimate takes for granted, or why there is none."""
