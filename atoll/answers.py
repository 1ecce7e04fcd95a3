"""What the API answers, as typed values of the client.

These mirror `api.schemas` but are the client's own: the client imports nothing of the server, ignores fields that it
does not know, and so works against a newer server. A test holds the two together.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

TERMINAL_STATES = frozenset({"succeeded", "failed", "cancelled"})


class Answer(BaseModel):
    """A part of an answer; fields that this client does not know are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


class JobSummary(Answer):
    id: str
    name: str
    state: str
    reason: str
    message: str
    world_size: int
    plan: str
    step: int
    total_steps: int
    loss: float | None
    """Training loss of the newest step, nats a token."""
    tokens_per_s: float | None
    restarts: int
    cancel_requested: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES


class JobPage(Answer):
    items: list[JobSummary]
    next_cursor: str | None


class Rank(Answer):
    rank: int
    coordinates: dict[str, int]
    node: str
    index: int
    island: str | None
    leaf: str | None
    pid: int | None
    device: str | None


class Axis(Answer):
    axis: str
    asked: str
    mode: str
    groups: int
    widest: str
    outside: int


class Placement(Answer):
    incarnation: int
    ranks: list[Rank]
    axes: list[Axis]
    explanation: list[str]
    certified: bool
    placed_at: datetime
    released_at: datetime | None


class Attempt(Answer):
    number: int
    incarnation: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    start_step: int
    end_step: int | None
    message: str


class Evaluation(Answer):
    step: int
    loss: float | None
    """Mean loss on the held-back part, nats a token; null when it was not finite."""
    unigram_loss: float


class JobDetail(JobSummary):
    spec: dict[str, Any]
    placement: Placement | None
    attempts: list[Attempt]
    evaluation: Evaluation | None


class Checkpoint(Answer):
    step: int
    attempt: int
    state: str
    message: str
    path: str
    bytes: int
    created_at: datetime


class CheckpointList(Answer):
    items: list[Checkpoint]


class Event(Answer):
    id: int
    at: datetime
    kind: str
    attempt: int | None
    message: str
    data: dict[str, Any]


class EventPage(Answer):
    items: list[Event]
    next_cursor: int | None


class StepCost(Answer):
    """What a step cost; null where it is not known."""

    sent_bytes: dict[str, int] | None
    """Bytes that a rank sent, mean over ranks, by axis."""
    phases_s: dict[str, float] | None
    exposed_s: dict[str, float] | None
    """Waiting for other ranks, by axis."""
    peak_bytes: int | None
    model_flops_per_s: float | None
    mfu: float | None


class Metric(Answer):
    id: int
    at: datetime
    attempt: int
    step: int
    loss: float | None
    """Null when it was not finite."""
    grad_norm: float | None
    learning_rate: float | None
    tokens: int
    step_time_s: float | None
    tokens_per_s: float | None
    cost: StepCost | None = None


class MetricPage(Answer):
    items: list[Metric]
    next_cursor: int | None


class TimelineSummary(Answer):
    attempt: int
    step: int
    at: datetime
    bubble: float
    """Measured: idle time of a rank / ideal time, mean over ranks."""
    theory: float


class TimelineList(Answer):
    items: list[TimelineSummary]


class TimelineTotals(Answer):
    """Sums over the steps since the timeline before."""

    steps: int
    busy_us: dict[str, int]
    own_us: int


class TimelineRank(Answer):
    rank: int
    start_us: int
    end_us: int
    busy_us: dict[str, int]
    spans: list[tuple[str, int, int, int, int]]
    """Work, stage, micro-batch, start and end in microseconds."""
    spans_left_out: int
    totals: TimelineTotals


class Timeline(TimelineSummary):
    schedule: str
    pp: int
    microbatches: int
    virtual_stages: int
    clock_error_us: int | None
    """Null: the clocks of the ranks' hosts could not be compared."""
    window_us: int
    """From the first work of any rank to the end of the last."""
    ranks: list[TimelineRank]


class Ledger(Answer):
    """GPU time by what it was spent on."""

    gpu_seconds: dict[str, float | None]
    """By class, in the order of a waterfall; None for a wait that nobody measured. They add up to
    `total_gpu_seconds`."""
    unmeasured_gpu_seconds: dict[str, float]
    """By wait: steps in which it was not measured; it lies in useful compute."""
    held_gpu_seconds: float
    """All classes but `queued` and `degraded`."""
    total_gpu_seconds: float
    goodput: float
    """Share of useful compute in what was held."""
    ettr: float
    """Steps that count, with their waits, of the total."""


class Repair(Answer):
    """A fault and what became of it; None: it has not come to that, or never did."""

    fault: str
    message: str
    attempt: int | None
    step: int | None
    rung: str | None
    last_step_at: datetime | None
    told_at: datetime
    settled_at: datetime | None
    trained_at: datetime | None
    stepped_at: datetime | None
    given_up: bool
    seconds: dict[str, float]
    """Of the parts that are over: `unnoticed`, `settling`, `repair`, `first-step`."""


class Goodput(Ledger):
    gpus: int
    until: datetime
    repairs: list[Repair]
    """Oldest first."""


class ProjectGoodput(Ledger):
    project: str
    jobs: int


class ClusterGoodput(Ledger):
    since: datetime
    until: datetime
    jobs: int
    projects: list[ProjectGoodput]


class Finding(Answer):
    attempt: int
    category: str
    """`straggler`, `imbalance` or `watch`."""
    kind: str
    subject: str
    """`rank 5`, `node n3`, `link 2-6`."""
    ranks: list[int]
    nodes: list[str]
    from_step: int
    to_step: int
    factor: float
    cost_s: float
    """What the job lost to it so far, seconds by `clock`."""
    step_cost_s: float
    confidence: float
    ongoing: bool
    clock: str
    """By which time computing was judged: `wall`, `cpu` or `device`."""
    sentence: str


class Health(Answer):
    policy: str
    healthy: bool
    """No rank, node or link is slow now."""
    heatmap_attempts: list[int]
    """Attempts of which a heat map is kept, newest first."""
    findings: list[Finding]


class HeatMapBlock(Answer):
    columns: list[tuple[int, int, int]]
    """First step, last step and number of measured steps of each."""
    scale_s: dict[str, float]
    cells: dict[str, str]
    """By plane, base64 of little-endian 16-bit numbers, row by row; 65535: not measured."""


class HeatMap(Answer):
    attempt: int | None
    ranks: int
    ranks_a_row: int
    blocks: list[HeatMapBlock]


class NodeBlame(Answer):
    node: str
    attempts: int
    jobs: int
    cost_s: float
    newest: str


class Blame(Answer):
    items: list[NodeBlame]


class Log(Answer):
    attempt: int
    rank: int
    offset: int
    """Offset in the file, bytes, of the first byte of `text`."""
    text: str
    size: int
    next_offset: int
    """Offset to ask for next."""
    live: bool


class LogPiece(Answer):
    """One item of a followed log."""

    rank: int
    attempt: int
    offset: int
    text: str


class AxisCost(Answer):
    axis: str
    degree: int
    sent_bytes: float
    """That a rank sends in a step."""
    tier: str
    link: str
    exposed_s: float


class IntervalAdvice(Answer):
    steps: int
    seconds: float
    lost: float
    """Share of the time."""
    stall_s: float
    failures_s: float
    failures_measured: bool


class Estimate(Answer):
    plan: str
    parallelism: dict[str, Any]
    recompute: str
    accelerator: str
    fits: bool
    memory_bytes: dict[str, float]
    memory_total_bytes: float
    memory_limit_bytes: float
    step_s: float
    seconds: dict[str, float]
    axes: list[AxisCost]
    tokens_per_s: float
    model_flops: float
    mfu: float
    mfu_convention: str
    budget_tokens: float
    budget_s: float
    budget_gpu_hours: float
    checkpoint: IntervalAdvice | None


class PlanSearch(Answer):
    best: list[Estimate]
    """Fastest first."""
    considered: int
    lost: dict[str, int]


class PlacedAxisCost(Answer):
    axis: str
    seconds: float
    by_tier: dict[str, float]
    widest: str
    uplink: str | None
    overlapped: bool


class PlanAnswer(Answer):
    spec: dict[str, Any] = {}
    """The job as it was read, with every default."""
    fits: bool
    plan: str
    world_size: int
    ranks: list[Rank]
    axes: list[Axis]
    explanation: list[str]
    refusal: str | None
    refusal_details: list[str]
    changes: list[str] = []
    costs: list[PlacedAxisCost] = []
    ever: bool
    estimate: Estimate | None = None
    search: PlanSearch | None = None
    notes: list[str] = []


class SlotView(Answer):
    index: int
    job_id: str | None
    job_name: str | None
    rank: int | None


class Cordon(Answer):
    """Why no job is placed on a node."""

    at: datetime
    who: str
    reason: str


class NodeView(Answer):
    name: str
    alive: bool
    schedulable: bool
    cordon: Cordon | None = None
    island: str | None
    leaf: str | None
    spine: str | None
    core: str | None
    accelerator: str | None
    islands: dict[str, str] = {}
    """Island per accelerator index, where islands are smaller than the node."""
    cpus: float | None = None
    suspect: bool = False
    """Its links were measured and are bad."""
    rails: dict[str, list[str]] = {}
    """Network adapters nearest to each accelerator, by its index."""
    weak_pairs: list[tuple[int, int]] = []
    """Accelerators of one island joined by fewer links than its other pairs."""
    partitioned: list[int] = []
    """Accelerators cut into parts (MIG)."""
    slots: list[SlotView]
    last_seen: datetime


class LinkView(Answer):
    kind: str | None
    bandwidth: float | None
    """Bytes per second that one accelerator can send over it, one direction."""
    latency_s: float | None
    uplink: float | None
    """Bytes per second that a domain of the next nearer tier can send up into this one."""
    measured: bool


class Cluster(Answer):
    nodes: list[NodeView]
    links: dict[str, LinkView] = {}
    """By tier; tiers of which nothing is known are left out."""
    total_slots: int
    free_slots: int
    controller: str
    cluster: str
    problems: list[str]
