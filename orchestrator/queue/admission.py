"""One pass over the queue: who starts, who waits and why, who makes room. Each decision carries its sentence.

Whole gangs only: a job gets all its accelerators or none. A job that does not fit keeps later ones from starting only
where accelerators are kept for it: those may take what is free otherwise, or what they surely give back in time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from orchestrator.lifecycle.states import Reason
from orchestrator.placement.explain import counted
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Holding, Room
from orchestrator.queue.claims import Running, Waiting
from orchestrator.queue.order import Shares, has_starved, in_order
from orchestrator.queue.policy import QueuePolicy
from orchestrator.queue.preemption import victims
from orchestrator.queue.reservation import Reservation, Solve, can_be_kept, reserve, without
from orchestrator.topology.fabric import Fabric


@dataclass(frozen=True, slots=True)
class Start:
    job_id: str
    placement: Placement
    sentence: str
    """Why now."""
    passed: int = 0
    """Jobs ahead of it that wait for room."""


@dataclass(frozen=True, slots=True)
class Wait:
    job_id: str
    reason: Reason
    sentence: str
    details: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    """Single changes of the job with which it would fit now."""
    ever: bool = True
    """False when it cannot start however long it waits."""


@dataclass(frozen=True, slots=True)
class Vacate:
    """A running job saves a checkpoint and gives its accelerators back."""

    job_id: str
    reason: Reason
    """`preempted`: it goes back to the queue. `time-limit`: it fails."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Undecided:
    """The solver failed on this job: the others are answered all the same."""

    job_id: str
    error: Exception


Decision = Start | Wait | Vacate | Undecided


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the waiting jobs meet."""

    fabric: Fabric
    room: Room
    running: Sequence[Running]
    now_s: float


def expired(running: Sequence[Running], now_s: float) -> Iterator[Vacate]:
    """Jobs that have reached their time limit."""
    for job in running:
        if not job.leaving and now_s >= job.limit_s:
            sentence = (
                f"It held its accelerators for {job.claim.time_limit_s:g} s, its queue.time_limit_s; it has "
                f"{job.claim.grace_s:g} s to save a checkpoint."
            )
            yield Vacate(job.claim.job_id, Reason.TIME_LIMIT, sentence)


class Admission:
    """One pass. `decisions` is lazy: who stops early has asked the solver no more than was needed so far."""

    def __init__(
        self,
        cluster: Cluster,
        shares: Shares,
        policy: QueuePolicy,
        solve: Solve,
        *,
        earlier: Sequence[Reservation] = (),
    ) -> None:
        """`earlier`: reservations of the pass before; one that can still be met stays as it is, so that its time is a
        promise. Losing them costs the promise, nothing else."""
        self._cluster = cluster
        self._running = {job.claim.job_id: job for job in cluster.running}
        preemptible = [job.claim.priority for job in cluster.running if job.claim.preemptible]
        self._lowest_preemptible = min(preemptible, default=math.inf)
        self._ends_known = any(job.ends_s < math.inf for job in cluster.running)
        """Whether anything says of any job when it ends at the latest."""
        self._started: list[Running] = []
        """Jobs of this pass. They give way to nobody yet, but what they hold is free again at their time limit."""
        self._room = cluster.room
        self._shares = shares
        self._policy = policy
        self._solve = solve
        self._earlier = {kept.job_id: kept for kept in earlier}
        self._passed = 0
        """Jobs that wait for room so far."""
        self.reservations: list[Reservation] = []

    def decisions(self, waiting: Sequence[Waiting]) -> Iterator[Decision]:
        for job in in_order(waiting, self._shares, self._policy):
            try:
                yield from self._decide(job)
            except Exception as error:
                yield Undecided(job.claim.job_id, error)

    def _decide(self, job: Waiting) -> Iterator[Decision]:
        if (over := self._over_quota(job)) is not None:
            yield over
            return
        found = self._solve(job.claim.job_id, self._room)
        if isinstance(found, Refusal):
            yield from self._keep_waiting(job, found)
            return
        binding = [kept for kept in self.reservations if kept.binds(job, self._cluster.now_s)]
        in_the_way = [kept for kept in binding if kept.meets(found)]
        if in_the_way:
            found = self._solve(job.claim.job_id, without(self._room, binding))
            if isinstance(found, Refusal):
                self._passed += 1
                yield _reserved_for_others(job, in_the_way[0])
                return
        self._room = self._room.without(found)
        self._shares.take(job.claim.project, job.claim.size)
        holding = Holding(found.slots, found.cpus_per_rank)
        started = Running(job.claim, holding, self._cluster.now_s, job.held_s, job.waited_s, leaving=False)
        self._started.append(started)
        self._ends_known |= started.ends_s < math.inf
        yield Start(job.claim.job_id, found, self._why_now(), self._passed)

    def _over_quota(self, job: Waiting) -> Wait | None:
        project, size = job.claim.project, job.claim.size
        quota = self._policy.project(project).quota
        held = self._shares.held(project)
        if quota is None or held + size <= quota:
            return None
        sentence = (
            f"project {project} holds {held} of its quota of {counted(quota, 'accelerator')}, {size} needed"
        )
        return Wait(job.claim.job_id, Reason.OVER_QUOTA, sentence, ever=size <= quota)

    def _keep_waiting(self, job: Waiting, refusal: Refusal) -> Iterator[Decision]:
        if not refusal.ever:
            yield Wait(
                job.claim.job_id, Reason.NEVER_FITS, refusal.message, refusal.details, refusal.changes, False
            )
            return
        self._passed += 1
        said = refusal.message
        if (making_room := self._make_room(job)) is not None:
            orders, kept = making_room
            yield from orders
            said += f"; {_kept(kept)}, as soon as the jobs there have saved their checkpoints"
        elif (promised := self._promise(job)) is not None:
            when = f"as soon as the jobs there end: it has waited for {self._policy.starvation_s:g} s"
            if promised.start_s < math.inf:
                when = f"at {_time(promised.start_s)} at the latest"
            said += f"; {_kept(promised)}, {when}"
        yield Wait(job.claim.job_id, Reason.NO_ROOM, said, refusal.details, refusal.changes)

    def _make_room(self, job: Waiting) -> tuple[list[Vacate], Reservation] | None:
        """Orders for jobs of lower priority to give way, and what is kept for `job` meanwhile."""
        if not self._policy.preemption or self._lowest_preemptible >= job.claim.priority:
            return None
        running = list(self._running.values())
        room = without(self._room, self.reservations)
        found = victims(job, running, room, self._cluster.fabric, self._policy, self._solve)
        if found is None:
            return None
        chosen, placement = found
        for other in chosen:
            self._running[other.claim.job_id] = replace(other, leaving=True)
            self._ends_known = True
        grace_s = max((other.claim.grace_s for other in running if other.leaving), default=0.0)
        grace_s = max([grace_s, *(other.claim.grace_s for other in chosen)])
        start_s = self._cluster.now_s + grace_s
        before = self._earlier.get(job.claim.job_id)
        if before is not None and before.placement == placement and before.start_s >= self._cluster.now_s:
            start_s = min(start_s, before.start_s)
        kept = Reservation(job.claim.job_id, job.claim.name, placement, start_s)
        self.reservations.append(kept)
        return [_gives_way(other, job) for other in chosen], kept

    def _promise(self, job: Waiting) -> Reservation | None:
        """What is kept for a job at the head of the queue."""
        if len(self.reservations) >= self._policy.reservations:
            return None
        starved = has_starved(job.waited_s, self._policy)
        if not (starved or self._ends_known or job.claim.job_id in self._earlier):
            return None
        cluster, running = self._cluster, [*self._running.values(), *self._started]
        kept = self._earlier.get(job.claim.job_id)
        if kept is None or not can_be_kept(kept, running, cluster.fabric, now_s=cluster.now_s):
            kept = reserve(
                job,
                running,
                without(self._room, self.reservations),
                cluster.fabric,
                self._solve,
                now_s=cluster.now_s,
                without_time=starved,
            )
        if kept is not None:
            self.reservations.append(kept)
        return kept

    def _why_now(self) -> str:
        if self._passed == 0:
            return "It was its turn."
        passed = counted(self._passed, "waiting job")
        if not self.reservations:
            return f"It passed {passed} that this leaves without room as before."
        kept = self.reservations[0]
        return f"It passed {passed}: this takes nothing that {kept.name} needs when its turn comes."


def _reserved_for_others(job: Waiting, kept: Reservation) -> Wait:
    whom = f"{kept.name} ({kept.job_id})"
    sentence = f"it would fit now, but on accelerators that are kept for {whom}, which is ahead of it"
    if kept.start_s < math.inf:
        sentence += f"; with a queue.time_limit_s that ends before {_time(kept.start_s)} it could start now"
    return Wait(job.claim.job_id, Reason.RESERVED, sentence)


def _gives_way(other: Running, job: Waiting) -> Vacate:
    sentence = (
        f"It gives way to {job.claim.name} ({job.claim.job_id}) of priority {job.claim.priority}, its own is "
        f"{other.claim.priority}; it has {other.claim.grace_s:g} s to save a checkpoint."
    )
    return Vacate(other.claim.job_id, Reason.PREEMPTED, sentence)


def _kept(kept: Reservation) -> str:
    return f"{counted(len(kept.placement.slots), 'accelerator')} are kept for it"


def _time(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
