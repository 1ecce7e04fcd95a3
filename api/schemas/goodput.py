"""Goodput: where GPU time went."""

from __future__ import annotations

from datetime import datetime

from api.schemas.jobs import Body
from orchestrator.goodput.classes import Spent
from orchestrator.lifecycle.reports import EventKind


class LedgerView(Body):
    gpu_seconds: dict[Spent, float | None]
    """By class, to the microsecond; every class is there, null for a wait that nobody measured. They add up to
    `total_gpu_seconds`."""
    unmeasured_gpu_seconds: dict[Spent, float]
    """By wait: steps in which it was not measured; it lies in useful compute. Empty when everything was."""
    held_gpu_seconds: float
    """Of GPUs that were held: all classes but `queued` and `degraded`."""
    total_gpu_seconds: float
    """From submission on: what was held, and what was asked for and not there."""
    goodput: float
    """Share of useful compute in what was held, 0 to 1."""
    ettr: float
    """Effective training time ratio, 0 to 1: steps that count, with their waits, of the total."""


class RepairView(Body):
    """A fault and what became of it; null: it has not come to that, or never did."""

    fault: EventKind
    message: str
    attempt: int | None
    """That it broke."""
    step: int | None
    """Newest finished step when it struck."""
    rung: str | None
    """How it was repaired: `in-place`, `re-placed` and others."""
    last_step_at: datetime | None
    told_at: datetime
    settled_at: datetime | None
    """When its cause was known and no rank of the attempt lived."""
    trained_at: datetime | None
    """When all ranks were ready again."""
    stepped_at: datetime | None
    """When a step was finished again."""
    given_up: bool
    """The job ended instead."""
    seconds: dict[str, float]
    """Of the parts that are over: `unnoticed` from the last step, `settling`, `repair`, `first-step`."""


class GoodputView(LedgerView):
    gpus: int
    """That the job asks for."""
    until: datetime
    """When the job ended; now, while it has not. GPUs it held after its end are counted too."""
    repairs: list[RepairView]
    """The newest 100 faults, oldest first."""


class ProjectGoodput(LedgerView):
    project: str
    jobs: int
    """That waited or held GPUs in that time."""


class ClusterGoodput(LedgerView):
    """All jobs together between two times."""

    since: datetime
    until: datetime
    jobs: int
    projects: list[ProjectGoodput]
    """By name."""
