"""Jobs and everything that hangs on one. Times are RFC 3339 in UTC."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState, Reason


class Body(BaseModel):
    model_config = ConfigDict(
        use_attribute_docstrings=True, extra="forbid", json_schema_serialization_defaults_required=True
    )


class JobSummary(Body):
    id: str
    name: str
    state: JobState | str
    """Another text than the known ones when a newer version of Atoll wrote it; `reason` and `kind` of an event too."""
    reason: Reason | str
    message: str
    """Why the job is in this state, one sentence; empty when there is nothing to say."""
    world_size: int
    plan: str
    """Degrees above one, inner to outer: `tp2 pp2 dp2`; `single` for one rank."""
    step: int
    total_steps: int
    loss: float | None
    """Training loss of the newest step, nats a token."""
    tokens_per_s: float | None
    restarts: int
    cancel_requested: bool
    """True from the moment a user asked for its end."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobPage(Body):
    items: list[JobSummary]
    next_cursor: str | None
    """Give it back as `cursor` for the next page; null on the last."""


class RankView(Body):
    rank: int
    coordinates: dict[str, int]
    """Coordinates on the axes: `{"tp": 0, "pp": 1, "dp": 0}`."""
    node: str
    index: int
    island: str | None
    leaf: str | None
    pid: int | None
    device: str | None


class AxisView(Body):
    axis: str
    asked: str
    mode: str
    groups: int
    widest: str
    outside: int


class PlacementView(Body):
    incarnation: int
    ranks: list[RankView]
    axes: list[AxisView]
    explanation: list[str]
    certified: bool
    """True once the running ranks have proved that they sit where they were placed."""
    placed_at: datetime
    released_at: datetime | None


class AttemptView(Body):
    number: int
    incarnation: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    start_step: int
    end_step: int | None
    message: str


class CheckpointView(Body):
    step: int
    attempt: int
    state: str
    """`committed`, `damaged` or `pruned`."""
    message: str
    """What was wrong with a damaged one; empty otherwise."""
    path: str
    bytes: int
    created_at: datetime


class Evaluation(Body):
    step: int
    loss: float | None
    """Mean loss on the held-back part, nats a token."""
    unigram_loss: float
    """Loss of a unigram model of the training part on the same held-back tokens."""


class JobDetail(JobSummary):
    spec: dict[str, Any]
    placement: PlacementView | None
    attempts: list[AttemptView]
    evaluation: Evaluation | None


class CheckpointList(Body):
    items: list[CheckpointView]


class EventView(Body):
    id: int
    """Grows with every event of the job: the cursor of the list and of the stream."""
    at: datetime
    kind: EventKind | str
    attempt: int | None
    message: str
    data: dict[str, Any]


class EventPage(Body):
    items: list[EventView]
    next_cursor: int | None


class StepCost(Body):
    """What a step cost. Seconds are rank 0's own; phases and exposed communication add up to the step's time."""

    sent_bytes: dict[str, int] | None
    """Bytes that a rank sent, mean over ranks, by axis: tp, cp, pp, dp, ep, shard (ZeRO), control."""
    phases_s: dict[str, float] | None
    """Seconds by phase without waiting for other ranks: data, forward, backward, optimizer, checkpoint, evaluation,
    other."""
    exposed_s: dict[str, float] | None
    """Seconds of waiting for other ranks, by axis; null on accelerators, where waiting does not stop the host."""
    peak_bytes: int | None
    """Largest memory of any rank so far: of its accelerator, or resident without one."""
    model_flops_per_s: float | None
    """Of the whole job: 6 FLOPs a weight and token and the causal half of attention, whatever is recomputed."""
    mfu: float | None
    """`model_flops_per_s` over the peak of the job's devices; null where that is unknown."""


class MetricView(Body):
    id: int
    """Grows with every point of the job: the cursor of the list and of the stream."""
    at: datetime
    attempt: int
    step: int
    loss: float | None
    """Null, as the numbers below, when it was not finite: JSON has no NaN."""
    grad_norm: float | None
    learning_rate: float | None
    tokens: int
    step_time_s: float | None
    tokens_per_s: float | None
    cost: StepCost | None
    """Null when the rank program measured nothing."""


class MetricPage(Body):
    items: list[MetricView]
    next_cursor: int | None


class LogView(Body):
    attempt: int
    rank: int
    offset: int
    """Offset in the file, bytes, of the first byte of `text`."""
    text: str
    size: int
    """Size of the file, bytes."""
    next_offset: int
    """Offset to ask for next: `offset` plus the bytes of `text`, never inside a character."""
    live: bool
    """False when the text comes from the copy kept after the attempt ended."""


class LogPiece(Body):
    """One item of the log stream."""

    rank: int
    attempt: int
    offset: int
    """Offset in the file, bytes, of the first byte of `text`."""
    text: str


class StreamEnd(Body):
    """Data of the last event of a stream, `end`."""

    state: JobState


class StreamProblem(Body):
    """Data of the event `problem`: why a stream stops before the job is over."""

    detail: str
