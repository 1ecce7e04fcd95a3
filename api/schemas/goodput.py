"""Goodput: where a job's GPU time went."""

from __future__ import annotations

from datetime import datetime

from api.schemas.jobs import Body
from orchestrator.goodput.classes import Spent


class GoodputView(Body):
    gpus: int
    until: datetime
    """When the job ended; now, while it has not."""
    gpu_seconds: dict[Spent, float]
    """By class, to the microsecond; every class is there. They add up to `total_gpu_seconds`."""
    total_gpu_seconds: float
    """From submission on: what the job was given or waited for."""
    goodput: float
    """Share of useful compute, 0 to 1."""
