"""What controller, supervisor, agents and ranks say to one another. Plain values; times are UTC seconds since 1970.

Every message carries (job, attempt); what belongs to another attempt is refused by the receiver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.health.finding import Clock, Finding
from orchestrator.health.heat import HeatBlock
from orchestrator.topology.fabric import Fabric, Slot


class EventKind(StrEnum):
    """Kinds of events in a job's history. The control plane writes the first group, the supervisor the second.

    Keys of `data` that the control plane reads (others are kept and shown):
    resumed {step, path, from, storage_bytes_read, seconds}, `from` being memory, partner or storage, of which storage
    alone has a path; attempt-ended {outcome, step}; evaluated {step, loss, unigram_loss};
    checkpoint-committed {step, path, bytes}; checkpoint-skipped {step or name, reason};
    any checkpoint event {pruned: [steps]} for old ones that were deleted.
    """

    SUBMITTED = "submitted"
    QUEUED = "queued"
    PLACED = "placed"
    CANCEL_REQUESTED = "cancel-requested"
    STATE_CHANGED = "state-changed"
    SUPERVISOR_STARTED = "supervisor-started"
    SUPERVISOR_LOST = "supervisor-lost"
    CONTROLLER_ERROR = "controller-error"
    """The controller could not do its part for this job; it tries again."""
    PREEMPTED = "preempted"
    """It was told to make room: it saves a checkpoint, goes back to the queue and resumes later."""
    MOVED = "moved"
    """Ranks of lost or slow nodes got other slots while the others stay: rung, revision, lost, cordoned (the slow
    node, or null), ranks, nodes, passed_over."""
    TIME_LIMIT_REACHED = "time-limit-reached"

    ATTEMPT_STARTED = "attempt-started"
    CERTIFIED = "certified"
    CERTIFICATE_REFUSED = "certificate-refused"
    TRAINING_STARTED = "training-started"
    RANK_DIED = "rank-died"
    NODE_LOST = "node-lost"
    HUNG = "hung"
    """No rank got on for too long: missing (ranks), ranks (what each did last), stacks."""
    STRAGGLER = "straggler"
    """A rank, node or link is slow: a `health.finding.Finding`."""
    STRAGGLER_RECOVERED = "straggler-recovered"
    REPLACEMENT_ADVISED = "replacement-advised"
    """A slow node costs the rest of the job more than doing without it: a `health.policy.Replacement`."""
    REPLACEMENT_PUT_OFF = "replacement-put-off"
    """It stays for now, because nothing can take over from it: node, reason."""
    IMBALANCE = "imbalance"
    """Work is not evenly spread, which is no machine's fault: a Finding."""
    REPAIR_STARTED = "repair-started"
    """A rung of the ladder is taken: rung, passed_over (why no cheaper one), waited_s (for the controller)."""
    REPAIRED = "repaired"
    """The first step after a failure is finished: rungs, seconds since the failure, ready_s of them until all ranks
    were ready, step."""
    CHECKPOINT_COMMITTED = "checkpoint-committed"
    CHECKPOINT_FAILED = "checkpoint-failed"
    CHECKPOINT_SKIPPED = "checkpoint-skipped"
    SNAPSHOT_KEPT = "snapshot-kept"
    """The first one of an attempt that is complete in memory, copies included: step, bytes, stall_s, total_s."""
    SNAPSHOT_FAILED = "snapshot-failed"
    """One that could not be kept in memory, told once for each reason: step, reason."""
    SNAPSHOT_SKIPPED = "snapshot-skipped"
    """One in memory, newer than what the ranks resumed from, that could not be used: step, reason."""
    RESUMED = "resumed"
    EVALUATED = "evaluated"
    UPDATE_SKIPPED = "update-skipped"
    """A step whose loss or gradient was not finite changed nothing: step, ranks, replicas, sequences, budget_left."""
    REWOUND = "rewound"
    """Such a step sent the job back to a checkpoint: the same, and to_step."""
    EXPERT_LOAD = "expert-load"
    """Tokens assigned to and dropped by each expert in one step, in up to 100 steps of a job."""
    TIMELINE = "timeline"
    """The schedule of one step as it ran (`lifecycle.timeline.Timeline`): kept apart from the history."""
    ATTEMPT_ENDED = "attempt-ended"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class GangEvent:
    seq: int
    """1, 2, 3 ... within one supervisor (incarnation): the drain cursor."""
    at: float
    kind: EventKind
    attempt: int
    message: str
    """One sentence for people."""
    data: Mapping[str, Any] = field(default_factory=dict)


TRAFFIC_AXES = ("tp", "cp", "pp", "dp", "ep", "shard", "control")
"""Whose traffic is told apart. `shard`: what ZeRO gathers and scatters; `control`: norm, loss and the like."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished optimizer step of the whole job."""

    seq: int
    at: float
    attempt: int
    step: int
    """1-based count of finished optimizer steps."""
    loss: float
    """Mean training loss per token, nats."""
    grad_norm: float
    learning_rate: float
    tokens: int
    step_time_s: float
    tokens_per_s: float
    cost: Mapping[str, Any] = field(default_factory=dict)
    """What the step cost, as `lifecycle.cost.step_cost` keeps it of what rank 0 measured; empty: nothing was."""


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank says of itself after start and before step 0; the certificate is made from these."""

    rank: int
    node: str
    index: int
    """Accelerator index on the node, as the process sees it bound."""
    pid: int
    device: str
    """UUID of the GPU, or `cpu`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the Ray node the process runs under."""


@dataclass(frozen=True, slots=True)
class LogTail:
    """Last bytes of one rank's log, kept when its attempt ends."""

    attempt: int
    rank: int
    text: str
    size_bytes: int
    """Size of the whole file; larger than the text when it was cut."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """How the ranks of an attempt compare: the whole state, which takes the place of the one told before. One that is
    lost is made good by the next."""

    attempt: int
    clock: Clock
    findings: tuple[Finding, ...]
    blocks: tuple[HeatBlock, ...]
    """The newest of the heat map, and the one before it."""


class Outcome(StrEnum):
    """How a supervisor ended. `node-lost` asks the controller for a new placement; `vacated` is what it told."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NODE_LOST = "node-lost"
    START_FAILED = "start-failed"
    VACATED = "vacated"


class GangPhase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Unwanted:
    """A node that lives and is slow: the gang trains on, and would rather do so without it."""

    node: str
    reason: str
    """One sentence for people."""


@dataclass(frozen=True, slots=True)
class GangReport:
    """Answer to one poll: everything newer than the cursors, and the state now."""

    job_id: str
    incarnation: int
    phase: GangPhase
    attempt: int
    restarts_used: int
    step: int
    """Newest finished step."""
    events: tuple[GangEvent, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    logs: tuple[LogTail, ...] = ()
    """Handed over with phase `ended` only, until acknowledged by a release."""
    ranks: tuple[RankFacts, ...] = ()
    outcome: Outcome | None = None
    reason: str = "none"
    deaths_at_step: tuple[int, int] = (0, 0)
    """(step, deaths there without progress) so far: carried over to the next incarnation."""
    health: tuple[HealthReport, ...] = ()
    """By attempt, where something has changed and it is time to tell."""
    message: str = ""
    """With an outcome: the sentence, and for a failure the traceback of the rank that died first."""
    revision: int = 0
    """Changes of its placement that the supervisor has carried out."""
    lost_nodes: tuple[str, ...] = ()
    """Nodes that are lost and whose ranks want another place: until the controller answers, or the deadline passes."""
    unwanted: Unwanted | None = None
    """A slow node whose ranks want another place; the gang waits for no answer."""
    spent: Mapping[str, int] = field(default_factory=dict)
    """What is used of the budgets (`recovery.ladder.History.carried`): carried over to the next incarnation."""
    told_at: float | None = None
    """UTC seconds since 1970 when it was given, by the supervisor's clock, as its times are."""


@dataclass(frozen=True, slots=True)
class Move:
    """The controller's answer to lost nodes, or to a slow one: the placement as it is from now on. Stored before it is
    told."""

    revision: int
    """The change this is: one more than the supervisor has carried out."""
    rung: str
    """`recovery.ladder.Rung` value."""
    slots: tuple[Slot, ...]
    """Slot of each rank, by rank; ranks on nodes that live stay where they are."""
    fabric: Fabric
    """The nodes of the placement, for the certificate."""
    message: str
    """One sentence for people."""
    replicas: int | None = None
    """Data replicas from now on, where some were dropped; None: as many as the job file says."""
    passed_over: tuple[str, ...] = ()
    """Why no cheaper rung served, a sentence each."""


@dataclass(frozen=True, slots=True)
class NoMove:
    """The other answer: nothing short of placing the whole job again; a slow node stays."""

    revision: int
    message: str
    """Why, one sentence."""
    slow: bool = False
    """It is about a slow node, and no answer to lost ones."""


@dataclass(frozen=True, slots=True)
class GangOrder:
    """What the controller tells a new supervisor; enough to run the job without the control plane."""

    job_id: str
    incarnation: int
    """1, 2, 3 ...: supervisors this job has had. Names of actors and placement groups carry it."""
    first_attempt: int
    restarts_used: int
    deaths_at_step: tuple[int, int]
    """(step, deaths there without progress) carried over from earlier incarnations."""
    spec: Mapping[str, Any]
    """JobSpec as JSON-compatible values."""
    slots: tuple[Slot, ...]
    fabric: Fabric
    """The nodes of the placement, for the certificate."""
    job_directory: str
    """Absolute path on shared storage: `checkpoints/` lies below it."""
    fencing_token: int
    program: str = "actors.training.loop:train"
    """`module:function` that every rank runs with (JobSpec, RankContext); other frameworks take its place."""
    extras: Mapping[str, Any] = field(default_factory=dict)
    """JSON-compatible values handed to the rank program as `RankContext.extras`."""
    spent: Mapping[str, int] = field(default_factory=dict)
    """What earlier incarnations used of the budgets (`recovery.ladder.History.carried`)."""
