"""The cluster: what is there, what is free, who holds what."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from api.schemas.jobs import Body


class SlotView(Body):
    index: int
    job_id: str | None
    """Job that holds the slot; null when free."""
    job_name: str | None
    rank: int | None


class CordonView(Body):
    at: datetime
    who: str
    """`atoll` for a slow node that a job has left; else whoever asked for it."""
    reason: str


class CordonRequest(Body):
    reason: Annotated[str, Field(min_length=1, max_length=500)]
    """Why no job is to be placed on the node."""


class NodeView(Body):
    name: str
    alive: bool
    schedulable: bool
    cordon: CordonView | None
    """Why nothing is placed on it; null where Atoll was not told so (the cluster's own cordons have none)."""
    island: str | None
    leaf: str | None
    spine: str | None
    core: str | None
    accelerator: str | None
    islands: dict[str, str]
    """Island per accelerator index, where islands are smaller than the node; `island` is then null."""
    cpus: float | None
    """CPUs that may be reserved on the node, free or not; null when unknown."""
    suspect: bool
    """Its links were measured and are bad: used only by jobs that do not fit without it."""
    rails: dict[str, list[str]]
    """Network adapters nearest to each accelerator, by its index."""
    weak_pairs: list[list[int]]
    """Pairs of accelerators, lower index first, of one island joined by fewer links than its other pairs."""
    partitioned: list[int]
    """Accelerators cut into parts (MIG), which are given to no job."""
    slots: list[SlotView]
    last_seen: datetime


class LinkView(Body):
    """What joins accelerators whose nearest shared tier is this one; null: unknown."""

    kind: str | None
    """Class of the link: `nvlink4`, `ib-ndr`."""
    bandwidth: float | None
    """Bytes per second that one accelerator can send over it, one direction."""
    latency_s: float | None
    uplink: float | None
    """Bytes per second that all accelerators of a domain of the next nearer tier can together send up into this one."""
    measured: bool
    """`bandwidth` is what programs got; otherwise what the link can carry at most."""


class ClusterView(Body):
    nodes: list[NodeView]
    links: dict[str, LinkView]
    """By tier, as declared or measured; tiers of which nothing is known are left out."""
    total_slots: int
    free_slots: int
    controller: str
    """`up`, or `down` when no controller has renewed its lease."""
    cluster: str
    """`up`, or `down` when the controller cannot reach Ray."""
    problems: list[str]


class Problem(Body):
    """An error, RFC 9457 (`application/problem+json`)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    violations: list[ProblemViolation] = Field(default_factory=list)


class ProblemViolation(Body):
    field: str
    value: str | int | float | bool | None
    message: str


Problem.model_rebuild()


class Version(Body):
    version: str
    python: str


class Health(Body):
    status: str
    problems: list[str] = Field(default_factory=list)
