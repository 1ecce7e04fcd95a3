"""The queue: who waits, in which order and why, and what each project has of the cluster."""

from __future__ import annotations

from datetime import datetime

from api.schemas.jobs import Body
from orchestrator.lifecycle.states import JobState, Reason


class ReservationView(Body):
    """Accelerators that are kept for a job."""

    size: int
    nodes: list[str]
    start_at: datetime | None
    """When all of them are free at the latest; null when nobody knows."""


class QueuedJobView(Body):
    position: int
    """1 is looked at first."""
    id: str
    name: str
    project: str
    priority: int
    world_size: int
    """Accelerators it asks for."""
    state: JobState | str
    """`queued`, or `recovering` for a job that needs another placement."""
    reason: Reason | str
    message: str
    """The sentence of the last decision about it."""
    share: float
    """That of its project."""
    created_at: datetime
    waited_s: float
    """Time in the queue, also before earlier placements."""
    starved: bool
    """It has waited longer than the policy's `starvation_s`, so it goes before those that have not."""
    reservation: ReservationView | None


class ProjectView(Body):
    name: str
    weight: float
    quota: int | None
    """Accelerators that its jobs may hold at once; null: no limit."""
    held: int
    """Accelerators that its jobs hold now."""
    use: float
    """Accelerators that it held lately: a mean that counts half after each `half_life_s`."""
    share: float
    """(held + use) / weight: of two projects the one with the smaller share goes first."""
    waiting_jobs: int
    wanted: int
    """Accelerators that its waiting jobs ask for."""


class QueuePolicyView(Body):
    starvation_s: float
    half_life_s: float
    reservations: int
    """Jobs at the head of the queue that accelerators are kept for."""
    preemption: bool


class QueueView(Body):
    items: list[QueuedJobView]
    """In the order in which the controller looks at them."""
    total: int
    """Waiting jobs in all."""
    projects: list[ProjectView]
    policy: QueuePolicyView | None
    """Null before a controller has told its policy; the order is then that of equal projects."""
