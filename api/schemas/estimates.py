"""What a plan would cost."""

from __future__ import annotations

from typing import Any

from api.schemas.jobs import Body


class AxisCost(Body):
    axis: str
    """`tp`, `cp`, `pp`, `dp`, `ep`, or `shard`: what ZeRO gathers and scatters."""
    degree: int
    sent_bytes: float
    """That a rank sends in a step."""
    tier: str
    """The nearest tier that holds the axis's groups."""
    link: str
    """Class of the link there."""
    exposed_s: float
    """Seconds of a step that nothing hides."""


class IntervalAdvice(Body):
    steps: int
    seconds: float
    lost: float
    """Share of the time that checkpoints and repeated steps take at this interval; 1 or more: there is no progress."""
    stall_s: float
    failures_s: float
    """Mean seconds between failures of the job."""
    failures_measured: bool
    """False: Llama 3's rate was taken."""


class EstimateView(Body):
    plan: str
    parallelism: dict[str, Any]
    recompute: str
    accelerator: str
    fits: bool
    memory_bytes: dict[str, float]
    """Of the rank that needs most: parameters, gradients, optimizer, activations, buffers."""
    memory_total_bytes: float
    memory_limit_bytes: float
    step_s: float
    seconds: dict[str, float]
    """Of a step: forward, backward, recompute, bubble, communication (exposed), optimizer."""
    axes: list[AxisCost]
    tokens_per_s: float
    model_flops: float
    """Of a step."""
    mfu: float
    mfu_convention: str
    """`causal`: attention's causal half counts."""
    budget_tokens: float
    budget_s: float
    budget_gpu_hours: float
    checkpoint: IntervalAdvice | None


class SearchView(Body):
    best: list[EstimateView]
    """Fastest first."""
    considered: int
    lost: dict[str, int]
    """Plans that are not among the best, by why: memory, refused, bubble, communication, recompute, compute; untried
    where no plan found a place and the search gave up."""
