"""A cluster in memory that keeps the launcher's promises, and a launcher that can die at any call.

The cluster outlives the controller, as the real one does. A gang makes one move at each `tick`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from orchestrator.lifecycle.ports import (
    ClusterUnreachableError,
    FencedError,
    GangRef,
    LogChunk,
    SupervisorGoneError,
)
from orchestrator.lifecycle.reports import (
    EventKind,
    GangEvent,
    GangOrder,
    GangPhase,
    GangReport,
    HealthReport,
    LogTail,
    Move,
    NoMove,
    Outcome,
    RankFacts,
    StepRecord,
    Unwanted,
)
from orchestrator.spec.sections import Tier
from orchestrator.store.engine import Database
from orchestrator.topology.fabric import Fabric, Node, Slot


class FakeCrash(BaseException):
    """The controller was killed here."""


@dataclass
class CrashAt:
    """Counts the lines at which a controller can die; raises FakeCrash at the k-th (from 0), once."""

    k: int | None = None
    count: int = 0
    fired: bool = False

    def line(self) -> None:
        here, self.count = self.count, self.count + 1
        if here == self.k and not self.fired:
            self.fired = True
            raise FakeCrash(f"line {here}")


@dataclass
class FakeGang:
    order: GangOrder
    phase: GangPhase = GangPhase.STARTING
    events: list[GangEvent] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    ranks: tuple[RankFacts, ...] = ()
    step: int = 0
    attempt: int = 0
    outcome: Outcome | None = None
    reason: str = "none"
    message: str = ""
    cancelled: bool = False
    grace_s: float | None = None
    """Set once it was asked to vacate."""
    supervisor_alive: bool = True
    processes_left: bool = True
    reaps_needed: int = 2
    fail_with: str | None = None
    """Fails with this traceback at its next move."""
    stubborn: bool = False
    """Does not end when it is cancelled."""
    health: tuple[HealthReport, ...] = ()
    """Told with each poll."""
    silent: bool = False
    """Its supervisor lives and does not answer."""
    still: bool = False
    """Makes no move any more."""
    newest_token: int = 0
    lost_nodes: tuple[str, ...] = ()
    """Nodes for whose ranks it asks the controller."""
    patience: int = 0
    """Moves for which it still asks; then it ends."""
    revision: int = 0
    unwanted: Unwanted | None = None
    """A slow node that it would do without."""
    refused: list[str] = field(default_factory=list)
    """Why it stays."""

    def say(self, kind: EventKind, message: str, **data: Any) -> None:
        seq = len(self.events) + 1
        self.events.append(GangEvent(seq, 1_700_000_000.0 + seq, kind, self.attempt, message, data))

    def tick(self) -> None:
        if self.still or not self.supervisor_alive or self.phase is GangPhase.ENDED:
            return
        if self.cancelled and not self.stubborn:
            self.end(Outcome.CANCELLED, "cancelled")
        elif self.lost_nodes:
            self.patience -= 1
            if self.patience <= 0:
                self.end(Outcome.NODE_LOST, "no answer")
        elif self.grace_s is not None and not self.stubborn:
            self.end(Outcome.VACATED, "vacated")
        elif self.fail_with is not None:
            self.say(EventKind.RANK_DIED, "rank 1 died", rank=1, step=self.step)
            self.reason = "no-progress"
            self.end(Outcome.FAILED, self.fail_with)
        elif self.attempt == 0:
            self.attempt = self.order.first_attempt
            self.say(EventKind.ATTEMPT_STARTED, f"attempt {self.attempt} begins")
        elif not self.ranks:
            self.ranks = tuple(
                RankFacts(rank, slot.node, slot.index, 1000 + rank, "cpu", {"host": slot.node})
                for rank, slot in enumerate(self.order.slots)
            )
            self.say(EventKind.CERTIFIED, "every group meets its tier")
        elif self.phase in (GangPhase.STARTING, GangPhase.RECOVERING):
            self.phase = GangPhase.RUNNING
            self.say(EventKind.TRAINING_STARTED, "step 0")
        elif self.step < self.order.spec["training"]["steps"]:
            self._train()
        else:
            self.say(EventKind.EVALUATED, "evaluated", step=self.step, loss=1.5, unigram_loss=3.0)
            self.end(Outcome.SUCCEEDED, "done")

    def _train(self) -> None:
        self.step += 1
        seq = len(self.steps) + 1
        self.steps.append(
            StepRecord(
                seq,
                1_700_000_000.0 + seq,
                self.attempt,
                self.step,
                4.0 / self.step,
                1.0,
                1e-3,
                64,
                0.1,
                640.0,
            )
        )
        self.say(
            EventKind.CHECKPOINT_COMMITTED,
            f"checkpoint {self.step}",
            step=self.step,
            path=f"step-{self.step:08d}",
            bytes=10,
            pruned=[self.step - 1] if self.step > 1 else [],
        )

    def lose(self, name: str, patience: int) -> None:
        """Its ranks are ended; it asks for another place for those of the node, `patience` moves long."""
        self.lost_nodes, self.patience = (*self.lost_nodes, name), patience
        self.say(EventKind.ATTEMPT_ENDED, f"node {name} was lost", outcome="node-lost", step=self.step)
        self.phase, self.ranks = GangPhase.RECOVERING, ()

    def take(self, answer: Move | NoMove) -> None:
        if answer.revision != self.revision + 1:
            return
        if isinstance(answer, NoMove) and answer.slow:
            self.refused.append(answer.message)
            self.unwanted = None
            return
        if isinstance(answer, NoMove):
            self.end(Outcome.NODE_LOST, answer.message)
            return
        self.order = replace(self.order, slots=answer.slots, fabric=answer.fabric)
        self.revision, self.lost_nodes, self.unwanted, self.ranks = answer.revision, (), None, ()
        self.phase = GangPhase.RECOVERING
        self.attempt += 1
        self.say(EventKind.ATTEMPT_STARTED, f"attempt {self.attempt} begins")

    def end(self, outcome: Outcome, message: str) -> None:
        if self.attempt:
            self.say(EventKind.ATTEMPT_ENDED, message, outcome=outcome.value, step=self.step)
        self.phase, self.outcome, self.message = GangPhase.ENDED, outcome, message
        self.lost_nodes = ()


class FakeCluster:
    """Two leaves x two nodes x two slots unless told otherwise."""

    def __init__(self, leaves: int = 2, nodes: int = 2, slots: int = 2) -> None:
        self.nodes = {
            f"l{leaf}n{node}": Node(
                f"l{leaf}n{node}",
                slots,
                {Tier.ISLAND: f"l{leaf}n{node}", Tier.LEAF: f"l{leaf}"},
                accelerator="cpu",
            )
            for leaf in range(leaves)
            for node in range(nodes)
        }
        self.gangs: dict[GangRef, FakeGang] = {}
        self.history: dict[GangRef, FakeGang] = {}
        """Every gang there ever was: what SQL must know in the end."""
        self.remembered: set[str] = set()
        """Jobs whose snapshots some node keeps."""
        self.unreachable = False
        self.double_booked: list[str] = []
        self.patience = 0
        """Moves for which supervisors that lose a node ask for another one; 0: they end at once."""

    def tick(self) -> None:
        for gang in self.gangs.values():
            gang.tick()

    def lose_node(self, name: str) -> None:
        """The node dies; supervisors that live elsewhere end with node-lost."""
        node = self.nodes[name]
        self.nodes[name] = Node(name, node.accelerators, node.domains, accelerator="cpu", alive=False)
        for gang in self.gangs.values():
            if gang.phase is not GangPhase.ENDED and any(slot.node == name for slot in gang.order.slots):
                gang.say(EventKind.NODE_LOST, f"node {name} was lost", node=name)
                if self.patience:
                    gang.lose(name, self.patience)
                else:
                    gang.end(Outcome.NODE_LOST, f"node {name} was lost")

    def kill_supervisors(self) -> None:
        for gang in self.gangs.values():
            gang.supervisor_alive = False

    def only_gang(self) -> FakeGang:
        (gang,) = self.gangs.values()
        return gang

    def busy_slots(self) -> list[Slot]:
        return [slot for gang in self.gangs.values() for slot in gang.order.slots]


class FakeLauncher:
    def __init__(self, cluster: FakeCluster, crash: CrashAt | None = None) -> None:
        self.cluster = cluster
        self.crash = crash or CrashAt()
        self.broken_starts: dict[str, Exception] = {}
        """Jobs whose start raises."""

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Dies before the effect, or after it with the answer lost."""
        self.crash.line()
        if self.cluster.unreachable:
            raise ClusterUnreachableError("no answer in 5 s")
        yield
        self.crash.line()

    def fabric(self) -> Fabric:
        with self._call():
            return Fabric(tuple(self.cluster.nodes.values()))

    def remembered(self) -> Sequence[str]:
        with self._call():
            return sorted(self.cluster.remembered)

    def forget(self, job_id: str) -> None:
        with self._call():
            self.cluster.remembered.discard(job_id)

    def gangs(self) -> Sequence[GangRef]:
        with self._call():
            return list(self.cluster.gangs)

    def start(self, order: GangOrder) -> None:
        with self._call():
            if order.job_id in self.broken_starts:
                raise self.broken_starts[order.job_id]
            ref = GangRef(order.job_id, order.incarnation)
            if ref not in self.cluster.gangs:
                overlap = set(order.slots) & set(self.cluster.busy_slots())
                if overlap:
                    self.cluster.double_booked.append(f"{ref}: {overlap}")
                self.cluster.gangs[ref] = self.cluster.history[ref] = FakeGang(order)

    def _supervisor(self, gang: GangRef) -> FakeGang:
        found = self.cluster.gangs.get(gang)
        if found is None or not found.supervisor_alive:
            raise SupervisorGoneError(f"{gang}")
        if found.silent:
            raise ClusterUnreachableError(f"no answer of {gang}")
        return found

    def poll(self, gang: GangRef, *, event_cursor: int, step_cursor: int, fencing_token: int) -> GangReport:
        with self._call():
            found = self._supervisor(gang)
            if fencing_token < found.newest_token:
                raise FencedError(f"token {fencing_token} is older than {found.newest_token}")
            ended = found.phase is GangPhase.ENDED
            return GangReport(
                job_id=gang.job_id,
                incarnation=gang.incarnation,
                phase=found.phase,
                attempt=found.attempt,
                restarts_used=found.order.restarts_used,
                step=found.step,
                events=tuple(event for event in found.events if event.seq > event_cursor),
                steps=tuple(step for step in found.steps if step.seq > step_cursor),
                logs=tuple(
                    LogTail(found.attempt, facts.rank, f"log of {facts.rank}\n", 9) for facts in found.ranks
                )
                if ended
                else (),
                ranks=found.ranks,
                outcome=found.outcome,
                reason=found.reason,
                health=found.health,
                message=found.message,
                revision=found.revision,
                lost_nodes=found.lost_nodes,
                unwanted=found.unwanted,
            )

    def cancel(self, gang: GangRef, *, fencing_token: int) -> None:
        with self._call():
            self._supervisor(gang).cancelled = True

    def vacate(self, gang: GangRef, *, grace_s: float, fencing_token: int) -> None:
        with self._call():
            self._supervisor(gang).grace_s = grace_s

    def move(self, gang: GangRef, answer: Move | NoMove, *, fencing_token: int) -> None:
        with self._call():
            found = self._supervisor(gang)
            if isinstance(answer, Move):
                others = [one for ref, one in self.cluster.gangs.items() if ref != gang]
                overlap = set(answer.slots) & {slot for one in others for slot in one.order.slots}
                if overlap:
                    self.cluster.double_booked.append(f"{gang}: {overlap}")
            found.take(answer)

    def reap(self, gang: GangRef) -> bool:
        """Kills at the first call; processes are gone some calls later, as in life."""
        with self._call():
            found = self.cluster.gangs.get(gang)
            if found is not None:
                found.supervisor_alive = False
                found.reaps_needed -= 1
                if found.reaps_needed <= 0:
                    del self.cluster.gangs[gang]
            return gang not in self.cluster.gangs

    def read_log(self, gang: GangRef, *, rank: int, attempt: int | None, offset: int, limit: int) -> LogChunk:
        with self._call():
            found = self._supervisor(gang)
            if not 0 <= rank < len(found.order.slots):
                raise LookupError(f"rank {rank}")
            content = f"rank {rank} says hello\n".encode()
            begin = offset if offset >= 0 else max(0, len(content) + offset)
            return LogChunk(
                attempt or found.attempt, rank, begin, content[begin : begin + limit], len(content)
            )


class FakeInlineExecutor(Executor):
    """Runs an act at once, in the caller's thread: rounds become deterministic."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class FakeDyingDatabase(Database):
    """A database whose client can die before a commit (nothing happened) or right after it (the answer is lost)."""

    def __init__(self, database: Database, crash: CrashAt) -> None:
        super().__init__(database.engine)
        self._crash = crash

    @contextmanager
    def write(self) -> Iterator[Session]:
        with super().write() as session:
            yield session
            self._crash.line()
        self._crash.line()
