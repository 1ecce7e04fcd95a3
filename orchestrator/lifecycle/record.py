"""The controller's write transactions. Each checks the fencing token first: one that lost the lease writes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from orchestrator.lifecycle import drain
from orchestrator.lifecycle.decide import Verdict
from orchestrator.lifecycle.reports import EventKind, GangReport, Unwanted
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.lifecycle.view import JobView
from orchestrator.placement.explain import counted
from orchestrator.placement.moved import Moved
from orchestrator.queue.admission import Start, Vacate, Wait
from orchestrator.queue.policy import QueuePolicy
from orchestrator.queue.reservation import Reservation
from orchestrator.recovery.failure import Blame
from orchestrator.recovery.ladder import Rung
from orchestrator.store import attempts, cordons, events, jobs, leases, nodes, placements
from orchestrator.store.engine import Database
from orchestrator.store.tables import Event
from orchestrator.topology.fabric import Fabric, Node

QUEUED_TOLD_EVERY = timedelta(minutes=10)
"""Between two events that differ in the sentence alone: a queue of days must not fill the history."""

ATOLL = "atoll"
"""Who cordons a slow node."""


class Record:
    """Every change of SQL that the controller makes, one method a transaction."""

    def __init__(self, database: Database, token: int, clock: Callable[[], datetime]) -> None:
        self.database = database
        self.token = token
        self._clock = clock

    @contextmanager
    def _write(self, *, alone: bool = False) -> Iterator[tuple[Session, datetime]]:
        """`alone`: no other transaction of this controller meanwhile, as where slots are given out."""
        with self.database.write() as session:
            leases.hold(session, self.token, alone=alone)
            yield session, self._clock()

    def still_leads(self) -> None:
        """LeadershipLostError when another controller has taken the lease."""
        with self._write():
            pass

    def cordoned(self) -> frozenset[str]:
        """Nodes that no job is placed on."""
        with self.database.read() as session:
            return frozenset(cordons.by_node(session))

    def observed(self, fabric: Fabric) -> None:
        with self._write() as (session, now):
            nodes.observe(session, fabric, now=now)

    def cluster_reachable(self, problems: str = "") -> None:
        """`problems`: of the fabric files, and what they and the cluster contradict each other in, a line each."""
        with self._write() as (session, _):
            leases.report_cluster(session, self.token, reachable=True, message=problems)

    def cluster_unreachable(self, message: str) -> None:
        """Shown on the lease and on every job that has not ended."""
        with self._write() as (session, _):
            leases.report_cluster(session, self.token, reachable=False, message=message)
            jobs.mark_unreachable(session, message)

    def job_unreachable(self, job: JobView, message: str) -> None:
        with self._write() as (session, now):
            jobs.set_state(session, job.id, job.state, Reason.CLUSTER_UNREACHABLE, message, now=now)

    def placed(self, job: JobView, start: Start, fabric: Fabric) -> bool:
        """Stores the placement and the state `starting`. False when the job changed since it was looked at.

        Its supervisor is started after this has been committed, never before: what runs is always in SQL. Another
        placement counts as a repair, unless the job gave its slots back because it was told to.
        """
        placement, incarnation = start.placement, job.incarnation + 1
        with self._write(alone=True) as (session, now):
            row = jobs.lock(session, job.id)
            if (row.state, row.incarnation) != (job.state.value, job.incarnation) or row.cancel_requested_at:
                return False
            if placements.taken(session, placement.slots, but=job.id, moved_only=True):
                return False  # a running job was given them since the queue looked
            last = placements.newest(session, job.id)
            repaired = last is not None and last.vacate_reason is None
            restarts = row.restarts + (1 if repaired else 0)
            placements.insert(
                session,
                job.id,
                incarnation,
                placement,
                fabric,
                first_attempt=attempts.newest_number(session, job.id) + 1,
                restarts_used=restarts,
                deaths_at_step=job.deaths_at_step,
                now=now,
                spent=job.spent,
            )
            placed = {"incarnation": incarnation, "restarts": restarts, "reservation": None}
            jobs.summarise(session, job.id, placed)
            on = sorted({slot.node for slot in placement.slots})
            data = {"incarnation": incarnation, "nodes": on, "explanation": list(placement.explanation)}
            shown = ", ".join(on[:8]) + (", ..." if len(on) > 8 else "")
            sentence = f"Placed on {counted(len(placement.slots), 'slot')} of {shown}. {start.sentence}"
            events.append(session, job.id, EventKind.PLACED, sentence, at=now, data=data)
            jobs.set_state(session, job.id, JobState.STARTING, Reason.NONE, "", now=now)
        return True

    def moved(
        self,
        job: JobView,
        lost: Sequence[str],
        moved: Moved,
        nodes: Sequence[Node],
        *,
        slow: Unwanted | None = None,
    ) -> bool:
        """Stores the change of a running job's placement, of which its supervisor is told afterwards. False when the
        job changed since it was looked at, or a slot was given to another meanwhile. A `slow` node that it is to do
        without is cordoned.

        Slots on lost nodes are nobody's at once, as after the end of a gang; those on living nodes are held on until
        the supervisor has ended its ranks there.
        """
        assert job.gang is not None
        gang, slots = job.gang, moved.placement.slots
        with self._write(alone=True) as (session, now):
            row = jobs.lock(session, job.id)
            placed = placements.get(session, job.id, gang.incarnation)
            if row.incarnation != gang.incarnation or row.cancel_requested_at or placed.vacate_reason:
                return False
            if placed.ended_at is not None or placed.revision != gang.revision:
                return False
            if placements.taken(session, slots, but=job.id):
                return False
            revision = gang.revision + 1
            placements.move(
                session,
                job.id,
                gang.incarnation,
                moved.placement,
                nodes,
                revision=revision,
                leaving=moved.left,
                replicas=moved.replicas or gang.replicas,
            )
            data = {
                "rung": _rung(moved).value,
                "replicas": moved.replicas,
                "gpus_before": len(placed.slots),
                "gpus": len(slots),
                "revision": revision,
                "lost": sorted(lost),
                "cordoned": None if slow is None else slow.node,
                "ranks": list(moved.ranks),
                "nodes": sorted({slots[rank].node for rank in moved.ranks}),
                "passed_over": list(moved.passed_over),
            }
            sentence = _moved_sentence(moved)
            if slow is not None:
                cordons.put(session, slow.node, at=now, who=ATOLL, reason=f"straggler: {slow.reason}")
                sentence = f"{sentence} Node {slow.node} is slow and takes no more work."
            events.append(session, job.id, EventKind.MOVED, sentence, at=now, data=data)
        return True

    def queue(self, policy: QueuePolicy, use: Mapping[str, float]) -> None:
        """By what the queue is ordered: shown on the lease."""
        told = {"policy": policy.model_dump(mode="json"), "use": {name: use[name] for name in sorted(use)}}
        with self._write() as (session, _):
            leases.report_queue(session, self.token, told)

    def reservations(self, views: Sequence[JobView], kept: Sequence[Reservation]) -> None:
        """What is kept for each waiting job now; writes only where that has changed."""
        wanted = {one.job_id: _reservation(one) for one in kept}
        changed = [view.id for view in views if view.gang is None and view.reservation != wanted.get(view.id)]
        if not changed:
            return
        with self._write() as (session, _):
            for job_id in changed:
                jobs.summarise(session, job_id, {"reservation": wanted.get(job_id)})

    def waits(self, job: JobView, wait: Wait) -> None:
        """The job waits, and says why. An event is written for another reason, and for another sentence only now and
        then: the sentence counts free slots, and changes with every job that comes or goes."""
        reason, sentence = wait.reason, wait.sentence
        if (job.state, job.reason, job.message) == (JobState.QUEUED, reason, sentence):
            return
        with self._write() as (session, now):
            if not jobs.set_state(session, job.id, JobState.QUEUED, reason, sentence, now=now):
                return
            last = events.newest_of_kind(session, job.id, EventKind.QUEUED)
            if _worth_telling(last, reason, sentence, now):
                data = {
                    "reason": reason.value,
                    "details": list(wait.details),
                    "changes": list(wait.changes),
                    "ever": wait.ever,
                }
                events.append(session, job.id, EventKind.QUEUED, sentence, at=now, data=data)

    def asked_to_vacate(self, job: JobView, vacate: Vacate) -> None:
        """The queue wants the job's slots back; its supervisor is asked from now on. Asking again changes nothing."""
        assert job.gang is not None
        with self._write() as (session, now):
            row = jobs.lock(session, job.id)
            if (row.state, row.incarnation) != (job.state.value, job.incarnation) or row.cancel_requested_at:
                return
            placements.ask_to_vacate(session, job.id, job.gang.incarnation, vacate.reason, vacate.sentence)
            data = {"reason": vacate.reason.value, "step": row.step}
            kind = _VACATE_EVENTS[vacate.reason]
            events.append(session, job.id, kind, vacate.sentence, at=now, data=data)

    def started(self, job: JobView) -> None:
        assert job.gang is not None
        incarnation = job.gang.incarnation
        with self._write() as (session, now):
            placements.started(session, job.id, incarnation, now=now)
            sentence = f"Supervisor {incarnation} was started."
            data = {"incarnation": incarnation}
            events.append(session, job.id, EventKind.SUPERVISOR_STARTED, sentence, at=now, data=data)

    def drained(self, job: JobView, report: GangReport, verdict: Verdict) -> bool:
        """False when the job changed since it was looked at; the next round looks again."""
        if drain.brings_nothing(job, report, verdict):
            return True
        with self._write() as (session, now):
            return drain.take_in(session, job, report, verdict, now=now)

    def supervisor_lost(self, job: JobView, verdict: Verdict) -> None:
        assert job.gang is not None
        with self._write() as (session, now):
            data = {"incarnation": job.gang.incarnation}
            sentence = f"Supervisor {job.gang.incarnation} is gone."
            events.append(session, job.id, EventKind.SUPERVISOR_LOST, sentence, at=now, data=data)
            used = job.spent.get(Blame.HARDWARE.value, 0)
            jobs.summarise(session, job.id, {"spent": {**job.spent, Blame.HARDWARE.value: used + 1}})
            jobs.set_state(session, job.id, verdict.state, verdict.reason, verdict.message, now=now)
            drain.end_gang(session, job, verdict, now=now)

    def ended(self, job: JobView, verdict: Verdict) -> None:
        """Ends the job; what it may have on the cluster is reaped from now on."""
        with self._write() as (session, now):
            jobs.set_state(session, job.id, verdict.state, verdict.reason, verdict.message, now=now)
            if job.gang is not None and not job.gang.ended:
                drain.end_gang(session, job, verdict, now=now)

    def released(self, job: JobView) -> None:
        assert job.gang is not None
        with self._write() as (session, now):
            placements.release(session, job.id, job.gang.incarnation, now=now)

    def failed_to_act(self, job_id: str, message: str) -> None:
        """The controller could not do its part for a job; written once for the same sentence."""
        with self._write() as (session, now):
            last = events.newest_of_kind(session, job_id, EventKind.CONTROLLER_ERROR)
            if last is None or last.message != message:
                events.append(session, job_id, EventKind.CONTROLLER_ERROR, message, at=now)


def _rung(moved: Moved) -> Rung:
    if moved.replicas is not None:
        return Rung.FEWER_REPLICAS
    return Rung.SPARE if moved.near else Rung.ELSEWHERE


def _moved_sentence(moved: Moved) -> str:
    if moved.replicas is not None:
        left = "1 replica goes" if moved.replicas == 1 else f"{moved.replicas} replicas go"
        return f"{left} on with the whole batch; what was broken is given back."
    ranks = ", ".join(map(str, moved.ranks[:8])) + (", ..." if len(moved.ranks) > 8 else "")
    nodes = sorted({moved.placement.slots[rank].node for rank in moved.ranks})
    shown = ", ".join(nodes[:8]) + (", ..." if len(nodes) > 8 else "")
    whose = "a spare node takes over" if moved.near else "the broken pipelines go elsewhere"
    return f"Ranks {ranks} go to {shown}: {whose}, all others stay."


_VACATE_EVENTS = {
    Reason.PREEMPTED: EventKind.PREEMPTED,
    Reason.TIME_LIMIT: EventKind.TIME_LIMIT_REACHED,
}


def _reservation(kept: Reservation) -> dict[str, Any]:
    start_at = (
        None if kept.start_s == math.inf else datetime.fromtimestamp(round(kept.start_s), UTC).isoformat()
    )
    nodes = sorted({slot.node for slot in kept.placement.slots})
    return {"size": len(kept.placement.slots), "nodes": nodes, "start_at": start_at}


def _worth_telling(last: Event | None, reason: Reason, message: str, now: datetime) -> bool:
    if last is None or last.data.get("reason") != reason.value:
        return True
    return last.message != message and now - last.at >= QUEUED_TOLD_EVERY
