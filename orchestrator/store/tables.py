"""The tables. SQL is the truth: what a crash must not lose is here and nowhere else.

Who writes what: the API inserts jobs and sets `cancel_requested_at`; everything else is written by the one
controller that holds the leader lease. So the two never fight over a column.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from orchestrator.store.column_types import BoundedCount, BoundedStep, CleanJson, CleanText, UtcDateTime

Identifier = String(36)


class Table(DeclarativeBase):
    """Base of every table; the naming convention lets Alembic name what it alters."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as a plain class attribute
        datetime: UtcDateTime(),
        dict[str, Any]: CleanJson(),
        list[Any]: CleanJson(),
    }


class Job(Table):
    """A job: what was asked, the state now, and a summary that lists are drawn from."""

    __tablename__ = "jobs"
    __table_args__ = (Index(None, "state", "id"),)

    id: Mapped[str] = mapped_column(Identifier, primary_key=True)
    """UUIDv7: sorts by creation, so it is also the key of the list and the order of the queue."""
    name: Mapped[str] = mapped_column(String(63))
    state: Mapped[str] = mapped_column(String(16))
    """`JobState` value."""
    reason: Mapped[str] = mapped_column(String(40))
    """`Reason` value."""
    message: Mapped[str] = mapped_column(CleanText, default="")
    cancel_requested_at: Mapped[datetime | None]
    """Desired state: set once by the API, obeyed by the controller."""
    incarnation: Mapped[int] = mapped_column(default=0)
    """Supervisors this job has had; the live one's placement has this number."""

    project: Mapped[str] = mapped_column(String(63), default="default", server_default="default")
    """Whose share of the cluster it uses."""
    priority: Mapped[int] = mapped_column(default=0, server_default="0")
    """As in its job file: higher ones start first."""
    reservation: Mapped[dict[str, Any] | None] = mapped_column(CleanJson(none_as_null=True))
    """While it waits, what is kept for it: `size` accelerators on `nodes`, free at `start_at` (RFC 3339; null: nobody
    knows when)."""
    world_size: Mapped[int]
    plan: Mapped[str] = mapped_column(String(120))
    total_steps: Mapped[int]
    step: Mapped[int] = mapped_column(BoundedStep, default=0)
    loss: Mapped[float | None]
    """Training loss of the newest step, nats a token; null before step 1 and when it was not finite."""
    tokens_per_s: Mapped[float | None]
    restarts: Mapped[int] = mapped_column(default=0)
    """Repairs so far, in place and elsewhere."""
    deaths_step: Mapped[int] = mapped_column(BoundedStep, default=0)
    """Step at which the last death happened, and how many happened there without progress between."""
    deaths_count: Mapped[int] = mapped_column(default=0)
    spent: Mapped[dict[str, Any]] = mapped_column(CleanJson, default=dict, server_default="{}")
    """What is used of the budgets of repair (`recovery.ladder.History.carried`)."""
    evaluation: Mapped[dict[str, Any] | None] = mapped_column(CleanJson(none_as_null=True))
    """Newest evaluation: step, loss, unigram_loss."""

    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    """When training first began."""
    finished_at: Mapped[datetime | None]

    last_event_id: Mapped[int] = mapped_column(default=0)
    last_metric_id: Mapped[int] = mapped_column(BigInteger, default=0)
    idempotency_key: Mapped[str | None] = mapped_column(String(255), unique=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """SHA-256 of the canonical spec: what an Idempotency-Key is held against."""
    spec: Mapped[dict[str, Any]] = mapped_column(CleanJson)
    """JobSpec as JSON. Last column: lists do not read it."""


def _job() -> Mapped[str]:
    return mapped_column(Identifier, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)


class Placement(Table):
    """Where one incarnation of a job runs, what its supervisor was told, and how far it has been drained."""

    __tablename__ = "placements"
    __table_args__ = (Index(None, "released_at"),)

    job_id: Mapped[str] = _job()
    incarnation: Mapped[int] = mapped_column(primary_key=True)
    slots: Mapped[list[Any]]
    """`[node, index]` of each rank, by rank; as they are now, after `revision` changes."""
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    """Changes of this placement: ranks of lost nodes that were given other slots while the others stayed."""
    leaving: Mapped[list[Any]] = mapped_column(CleanJson, default=list, server_default="[]")
    """`[node, index]` of slots that the newest change gives back: held until its ranks there have ended."""
    replicas: Mapped[int | None]
    """Data replicas it runs with since some were dropped; null: as many as the job file says."""
    nodes: Mapped[list[Any]]
    """The fabric nodes it lies on, as they were when it was made (`topology.fabric.Node` as JSON)."""
    axes: Mapped[list[Any]]
    """`AxisOutcome` of each axis as JSON."""
    explanation: Mapped[list[Any]]
    ranks: Mapped[list[Any]]
    """`RankFacts` of the running ranks as JSON; empty until the first certificate."""
    certified: Mapped[bool] = mapped_column(Boolean, default=False)

    cpus_per_rank: Mapped[float] = mapped_column(default=0.0, server_default="0")
    """CPUs of its node that each rank holds."""
    first_attempt: Mapped[int]
    restarts_used: Mapped[int]
    deaths_step: Mapped[int] = mapped_column(BoundedStep)
    deaths_count: Mapped[int]
    spent: Mapped[dict[str, Any]] = mapped_column(CleanJson, default=dict, server_default="{}")
    """As the job's was."""

    event_cursor: Mapped[int] = mapped_column(BigInteger, default=0)
    """Newest `GangEvent.seq` in SQL; moves in the transaction that inserts the events."""
    step_cursor: Mapped[int] = mapped_column(BigInteger, default=0)

    placed_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    """When the launcher had started its supervisor; null: it may or may not have been, so it is started again."""
    ended_at: Mapped[datetime | None]
    """When its supervisor ended or was found dead: from then on it is reaped, not polled."""
    released_at: Mapped[datetime | None]
    """When nothing of it was left on the cluster: its slots are free from then on."""
    vacate_reason: Mapped[str | None] = mapped_column(String(40))
    """Desired state: `Reason` value when the queue wants its slots back; null: it may stay."""
    vacate_message: Mapped[str] = mapped_column(CleanText, default="", server_default="")


class Attempt(Table):
    """One life of a gang."""

    __tablename__ = "attempts"

    job_id: Mapped[str] = _job()
    number: Mapped[int] = mapped_column(primary_key=True)
    incarnation: Mapped[int]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None] = mapped_column(String(40))
    start_step: Mapped[int] = mapped_column(BoundedStep, default=0)
    """Step of the checkpoint it began from; 0 for a fresh start."""
    end_step: Mapped[int | None] = mapped_column(BoundedStep)
    message: Mapped[str] = mapped_column(CleanText, default="")


class Event(Table):
    """History of a job. `id` counts 1, 2, 3 ... within the job without a gap."""

    __tablename__ = "events"
    __table_args__ = (UniqueConstraint("job_id", "incarnation", "seq"),)

    job_id: Mapped[str] = _job()
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    kind: Mapped[str] = mapped_column(String(40))
    attempt: Mapped[int | None]
    incarnation: Mapped[int | None]
    """With `seq`: where a supervisor's event came from; null for events of the control plane."""
    seq: Mapped[int | None] = mapped_column(BigInteger)
    message: Mapped[str] = mapped_column(CleanText)
    data: Mapped[dict[str, Any]]


class Metric(Table):
    """One finished step. A step that was trained again after a repair has a row for each time."""

    __tablename__ = "metrics"
    __table_args__ = (UniqueConstraint("job_id", "incarnation", "seq"),)

    job_id: Mapped[str] = _job()
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    incarnation: Mapped[int]
    seq: Mapped[int] = mapped_column(BigInteger)
    attempt: Mapped[int]
    step: Mapped[int] = mapped_column(BoundedStep)
    loss: Mapped[float | None]
    """Null when it was not finite: neither JSON nor SQLite has a NaN."""
    grad_norm: Mapped[float | None]
    learning_rate: Mapped[float | None]
    tokens: Mapped[int] = mapped_column(BoundedCount)
    step_time_s: Mapped[float | None]
    tokens_per_s: Mapped[float | None]
    cost: Mapped[dict[str, Any] | None] = mapped_column(CleanJson(none_as_null=True))
    """Bytes, phases, memory and FLOP/s (`lifecycle.cost.step_cost`); null when nothing was measured."""


class StepStretch(Table):
    """Sums over up to 64 finished steps that follow one another (`goodput.stretch.Stretch`), kept as metrics come in.

    Metrics that are older than this table have none: their sums are made when they are asked for.
    """

    __tablename__ = "stretches"

    job_id: Mapped[str] = _job()
    first_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    """`Metric.id` of the first; `last_id` that of the last."""
    last_id: Mapped[int] = mapped_column(BigInteger)
    attempt: Mapped[int]
    first_step: Mapped[int] = mapped_column(BoundedStep)
    last_step: Mapped[int] = mapped_column(BoundedStep)
    first_end_us: Mapped[int] = mapped_column(BigInteger)
    first_us: Mapped[int] = mapped_column(BigInteger)
    end_us: Mapped[int] = mapped_column(BigInteger)
    steps_us: Mapped[int] = mapped_column(BigInteger)
    communication_us: Mapped[int] = mapped_column(BigInteger)
    bubble_us: Mapped[int] = mapped_column(BigInteger)
    data_us: Mapped[int] = mapped_column(BigInteger)
    checkpoint_us: Mapped[int] = mapped_column(BigInteger)
    waits_known_us: Mapped[int] = mapped_column(BigInteger)
    phases_known_us: Mapped[int] = mapped_column(BigInteger)


class Checkpoint(Table):
    """A checkpoint a job has written."""

    __tablename__ = "checkpoints"

    job_id: Mapped[str] = _job()
    step: Mapped[int] = mapped_column(BoundedStep, primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    """`CheckpointState` value."""
    path: Mapped[str] = mapped_column(CleanText)
    bytes: Mapped[int] = mapped_column(BoundedCount)
    message: Mapped[str] = mapped_column(CleanText, default="")
    """What was wrong with a damaged one."""
    created_at: Mapped[datetime]


class StepTimeline(Table):
    """The schedule of one step as one pipeline ran it. A job keeps the newest few."""

    __tablename__ = "timelines"

    job_id: Mapped[str] = _job()
    attempt: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    bubble: Mapped[float]
    """Measured, as a part of ideal time."""
    theory: Mapped[float]
    data: Mapped[dict[str, Any]]
    """`lifecycle.timeline.Timeline` as JSON. Last column: lists do not read it."""


class HealthFinding(Table):
    """What is said of a rank, node, link or stage in one attempt. Written anew as it grows."""

    __tablename__ = "health_findings"
    __table_args__ = (Index(None, "category", "at"),)

    job_id: Mapped[str] = _job()
    attempt: Mapped[int] = mapped_column(primary_key=True)
    category: Mapped[str] = mapped_column(String(16), primary_key=True)
    """`health.finding.Category` value."""
    subject: Mapped[str] = mapped_column(String(300), primary_key=True)
    from_step: Mapped[int] = mapped_column(BoundedStep, primary_key=True)
    node: Mapped[str | None] = mapped_column(String(255))
    """The one node it is about; null where it is about several or none."""
    at: Mapped[datetime]
    """When it was told last."""
    data: Mapped[dict[str, Any]]
    """`health.finding.Finding` as JSON."""


class HeatMapBlock(Table):
    """Some columns of the heat map of an attempt. A job keeps the newest few."""

    __tablename__ = "heat_blocks"

    job_id: Mapped[str] = _job()
    attempt: Mapped[int] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    data: Mapped[dict[str, Any]]
    """`health.heat.HeatBlock` as JSON."""


class RankLog(Table):
    """Last part of one rank's log, kept when its attempt ended."""

    __tablename__ = "rank_logs"

    job_id: Mapped[str] = _job()
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(CleanText)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    """Size of the whole file; the text is its end."""


class ClusterNode(Table):
    """A node as the controller last saw it."""

    __tablename__ = "nodes"

    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    accelerators: Mapped[int]
    domains: Mapped[dict[str, Any]]
    """Domain per switch tier."""
    islands: Mapped[dict[str, Any]]
    """Island per accelerator index, where islands are smaller than the node. Keys are decimal strings."""
    accelerator: Mapped[str | None] = mapped_column(String(255))
    alive: Mapped[bool]
    schedulable: Mapped[bool]
    cpus: Mapped[float | None]
    """CPUs of the node, free or not; null when unknown."""
    details: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default="{}")
    """What few nodes have: suspect, partitioned accelerators, weak pairs; and rails."""
    first_seen: Mapped[datetime]
    last_seen: Mapped[datetime]
    """Last time it was seen alive."""


class NodeCordon(Table):
    """A node that no job is placed on until somebody lifts this."""

    __tablename__ = "cordons"

    node: Mapped[str] = mapped_column(String(255), primary_key=True)
    at: Mapped[datetime]
    who: Mapped[str] = mapped_column(String(255))
    """`atoll`, or whoever did it through the API."""
    reason: Mapped[str] = mapped_column(CleanText)


class ClusterLink(Table):
    """What joins accelerators whose nearest shared tier is this one, as the controller last knew it; null: unknown."""

    __tablename__ = "links"

    tier: Mapped[str] = mapped_column(String(16), primary_key=True)
    """`Tier` value."""
    kind: Mapped[str | None] = mapped_column(String(255))
    bandwidth: Mapped[float | None]
    """Bytes per second of one accelerator, one direction."""
    latency_s: Mapped[float | None]
    uplink: Mapped[float | None]
    """Bytes per second that a domain of the next nearer tier can send up into this one."""
    measured: Mapped[bool]


class Lease(Table):
    """The leader lease: one row a name. Every write of a controller checks `token`."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    token: Mapped[int] = mapped_column(BigInteger)
    """Grows with every change of holder: the fencing token."""
    holder: Mapped[str | None] = mapped_column(String(255))
    expires_at: Mapped[datetime]
    endpoint: Mapped[str | None] = mapped_column(String(255))
    """`http://HOST:PORT` of the holder's private endpoint."""
    cluster_reachable: Mapped[bool | None]
    """Whether the holder's last round reached Ray; null before its first round."""
    cluster_message: Mapped[str] = mapped_column(CleanText, default="")
    queue: Mapped[dict[str, Any] | None] = mapped_column(CleanJson(none_as_null=True))
    """The holder's `policy` of the queue (`queue.policy.QueuePolicy`) and the `use` of each project lately."""
