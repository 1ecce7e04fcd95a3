"""The reconciler: observe -> decide -> act -> record, again and again.

Level-triggered: what a round does depends on what SQL and the cluster say now, never on what an earlier round
remembers. What is kept in memory (parsed specs, refusals, back-off) saves work and may be lost at any moment. So a
controller can be killed at any line; the next one goes on.

Invariants, in the order in which they are defended:
- a placement is in SQL before its supervisor is started (`Record.placed`), so nothing runs that SQL does not know;
- a gang that SQL does not know as unreleased is reaped (`reap_orphans`);
- slots are free only when `Launcher.reap` has said that nothing is left (`Record.released`);
- cursors move with the rows they count (`drain.take_in`);
- one task a job at a time, so a job's acts never overtake one another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from orchestrator.lifecycle import decide
from orchestrator.lifecycle.backoff import Backoff
from orchestrator.lifecycle.clocks import by_our_clock
from orchestrator.lifecycle.cluster import ClusterWatch, Sighting
from orchestrator.lifecycle.decide import Act, Verdict
from orchestrator.lifecycle.moves import Moves
from orchestrator.lifecycle.orders import order_of
from orchestrator.lifecycle.ports import ClusterUnreachableError, FencedError, Launcher, SupervisorGoneError
from orchestrator.lifecycle.queueing import Past, Queueing
from orchestrator.lifecycle.record import Record
from orchestrator.lifecycle.specs import SpecCache
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.lifecycle.view import JobView, read_job, read_jobs
from orchestrator.queue.admission import Decision, Start, Undecided, Vacate, Wait
from orchestrator.queue.policy import QueuePolicy
from orchestrator.queue.use import mean_use
from orchestrator.recovery.timeouts import CANCEL_S
from orchestrator.spec.violations import InvalidSpecError
from orchestrator.store import placements
from orchestrator.store.engine import Database
from orchestrator.store.errors import LeadershipLostError
from orchestrator.topology.declared import Declared
from orchestrator.topology.fabric import Fabric

LOOK_EVERY_S = 1.0
"""Between two looks at the fabric."""
POLL_EVERY_S = 1.0
"""Between two polls of a job that trains: it has nothing to wait for. Any other is polled every round."""
ORPHANS_EVERY_S = 30.0
SPECS_A_ROUND = 500
"""Specs read in one pass over the queue, oldest job first: about half a second."""
USE_EVERY_S = 60.0
"""Between two sums over what the projects have used."""
HALF_LIVES = 8
"""What was used longer ago than this many half-lives counts 1/256 at most, and is left out."""
QUEUE_SHARE = 0.2
"""Largest part of the time spent on the queue: a pass over a very long one is followed by a pause."""

log = structlog.get_logger(__name__)


class Reconciler:
    """One leader's life: made with its token, dropped with it."""

    def __init__(
        self,
        database: Database,
        launcher: Launcher,
        *,
        token: int,
        storage_directory: Path,
        executor: Executor,
        clock: Callable[[], datetime],
        clock_s: Callable[[], float] = time.monotonic,
        declared: Callable[[], Declared] | None = None,
        policy: QueuePolicy | None = None,
    ) -> None:
        self._policy = policy or QueuePolicy()
        self._database = database
        self._launcher = launcher
        self._clock = clock
        self._record = Record(database, token, clock)
        self._storage_directory = storage_directory
        self._executor = executor
        self._clock_s = clock_s
        self._specs = SpecCache(database)
        self._queueing = Queueing(self._specs, self._policy)
        self._use: Mapping[str, float] = {}
        self._watch = ClusterWatch(launcher, self._record, declared=declared, clock_s=clock_s)
        self._moves = Moves(database, self._record, launcher)
        self._backoff = Backoff(clock_s)
        self._tasks: dict[str, Future[None]] = {}
        self._due_s = {what: float("-inf") for what in ("look", "orphans", "queue", "use")}
        self._ending_since_s: dict[str, float] = {}
        self._silent_since_s: dict[str, float] = {}
        self._poll_due_s: dict[str, float] = {}
        self._lost: LeadershipLostError | None = None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """No act under way goes on to another gang."""
        self._stopping.set()

    def round(self) -> Sighting:
        """One pass. Raises LeadershipLostError once another controller leads; trouble of one job stays its own."""
        if self._lost is not None:
            raise self._lost
        if self._is_due("look", LOOK_EVERY_S):
            self._dispatch("look", self._watch.look)
        sighting = self._watch.newest()
        if self._clock_s() >= self._due_s["queue"]:
            began_s = self._clock_s()
            self._queue_pass(sighting)
            self._due_s["queue"] = self._clock_s() + (self._clock_s() - began_s) * (1 / QUEUE_SHARE - 1)
        if sighting.fabric is not None:
            if self._is_due("orphans", ORPHANS_EVERY_S):
                self._dispatch("orphans", self.reap_orphans)
            self._gang_pass()
        if self._lost is not None:
            raise self._lost
        return sighting

    def _is_due(self, what: str, every_s: float) -> bool:
        now_s = self._clock_s()
        if now_s < self._due_s[what]:
            return False
        self._due_s[what] = now_s + every_s
        return True

    def _queue_pass(self, sighting: Sighting) -> None:
        """Everything about jobs of which nothing is on the cluster; changes SQL only."""
        with self._database.read() as session:
            views = read_jobs(session)
        self._specs.keep_only(view.id for view in views)
        unread = 0
        for view in views:
            if view.gang is not None:
                continue
            if decide.next_act(view) is Act.CANCEL_NOW:
                self._guarded(view.id, self._end_cancelled, view)
            elif view.waits_for_placement and self._backoff.over(view.id):
                unread += not self._specs.is_known(view.id)
                if unread <= SPECS_A_ROUND:
                    self._guarded(view.id, self._fail_when_unreadable, view)
        if sighting.fabric is None:
            return
        by_id = {view.id: view for view in views}
        decisions = self._queueing.decisions(
            views,
            sighting.fabric,
            self._past(views),
            now_s=self._clock().timestamp(),
            ready=self._backoff.over,
        )
        for decision in decisions:
            view = by_id[decision.job_id]
            self._guarded(view.id, self._tell_decision, view, decision, sighting.fabric)
        self._guarded("queue", self._record.reservations, views, self._queueing.reservations)

    def _past(self, views: Sequence[JobView]) -> Past:
        if self._is_due("use", USE_EVERY_S):
            self._use = self._used_lately()
            self._guarded("use", self._record.queue, self._policy, self._use)
        again = [view.id for view in views if view.incarnation > 0]
        with self._database.read() as session:
            return Past(placements.held_before(session, again), self._use)

    def _used_lately(self) -> Mapping[str, float]:
        now, half_life_s = self._clock(), self._policy.half_life_s
        with self._database.read() as session:
            since = now - timedelta(seconds=HALF_LIVES * half_life_s)
            spans = placements.spans_since(session, since, now=now)
        return mean_use(spans, now_s=now.timestamp(), half_life_s=half_life_s)

    def _tell_decision(self, view: JobView, decision: Decision, fabric: Fabric) -> None:
        match decision:
            case Start():
                self._record.placed(view, decision, fabric)
            case Wait():
                self._record.waits(view, decision)
            case Vacate():
                self._record.asked_to_vacate(view, decision)
            case Undecided(error=error):
                raise error

    def _fail_when_unreadable(self, view: JobView) -> None:
        try:
            self._specs.of(view.id)
        except InvalidSpecError as error:
            self._record.ended(view, _unreadable(error))

    def _end_cancelled(self, view: JobView) -> None:
        verdict = Verdict(JobState.CANCELLED, Reason.CANCELLED_BY_USER, "Cancelled by a user.")
        self._record.ended(view, verdict)

    def _gang_pass(self) -> None:
        with self._database.read() as session:
            job_ids = placements.holding_jobs(session)
        self._poll_due_s = {job_id: self._poll_due_s.get(job_id, 0.0) for job_id in job_ids}
        for job_id in job_ids:
            if self._backoff.over(job_id) and self._clock_s() >= self._poll_due_s[job_id]:
                self._dispatch(job_id, self._care_for, job_id)

    def _care_for(self, job_id: str) -> None:
        """The next act for a job that holds slots. Reads it afresh: the task before may have changed it."""
        with self._database.read() as session:
            view = read_job(session, job_id)
        act = decide.next_act(view)
        try:
            match act:
                case Act.START:
                    self._specs.of(job_id)
                    self._start(view)
                case Act.POLL | Act.CANCEL_AND_POLL | Act.VACATE_AND_POLL:
                    self._poll(view, act)
                case Act.REAP:
                    self._reap(view)
                case Act.CANCEL_NOW:
                    self._end_cancelled(view)
                case Act.WAIT_FOR_PLACEMENT | Act.NOTHING:
                    pass
        except InvalidSpecError as error:
            self._record.ended(view, _unreadable(error))

    def _start(self, view: JobView) -> None:
        assert view.gang is not None
        with self._database.read() as session:
            order = order_of(
                session,
                view.id,
                view.gang.incarnation,
                storage_directory=self._storage_directory,
                fencing_token=self._record.token,
            )
        self._record.still_leads()
        self._launcher.start(order)
        self._record.started(view)

    def _poll(self, view: JobView, act: Act) -> None:
        assert view.gang is not None
        spec = self._specs.of(view.id)
        grace_s = 0.0
        gang = view.gang_ref()
        try:
            if act is Act.CANCEL_AND_POLL:
                self._launcher.cancel(gang, fencing_token=self._record.token)
            elif act is Act.VACATE_AND_POLL:
                grace_s = spec.queue.grace_s
                self._launcher.vacate(gang, grace_s=grace_s, fencing_token=self._record.token)
            report = self._launcher.poll(
                gang,
                event_cursor=view.gang.event_cursor,
                step_cursor=view.gang.step_cursor,
                fencing_token=self._record.token,
            )
        except SupervisorGoneError as error:
            log.warning("supervisor-gone", job_id=view.id, error=str(error))
            self._silent_since_s.pop(view.id, None)
            self._record.supervisor_lost(view, decide.conclude_gone(view, spec.recovery))
            return
        except ClusterUnreachableError as error:
            if (silent_s := self._silent_for_good(view)) is None:
                raise
            log.warning("supervisor-silent", job_id=view.id, silent_s=silent_s, error=str(error))
            verdict = decide.conclude_gone(view, spec.recovery, silent_s=silent_s)
            self._record.supervisor_lost(view, verdict)
            return
        self._silent_since_s.pop(view.id, None)
        report = by_our_clock(report, self._clock().timestamp())
        verdict = decide.conclude(view, report)
        if act is not Act.POLL and not verdict.gang_over:
            since_s = self._ending_since_s.setdefault(view.id, self._clock_s())
            waited_s = self._clock_s() - since_s
            if waited_s >= grace_s + CANCEL_S:
                verdict = decide.conclude_not_ending(view, waited_s)
        self._record.drained(view, report, verdict)
        fabric = self._watch.newest().fabric
        if (
            decide.wants_answer(view, report)
            and act is Act.POLL
            and not verdict.gang_over
            and fabric is not None
        ):
            self._moves.answer(view, report, fabric)
        if view.state is JobState.RUNNING and verdict.state is JobState.RUNNING:
            self._poll_due_s[view.id] = self._clock_s() + POLL_EVERY_S

    def _silent_for_good(self, view: JobView) -> float | None:
        """How long a supervisor has been silent that is to be ended by force; None while it may answer yet. Time in
        which the cluster gave no answer either says nothing about it."""
        if self._watch.newest().fabric is None:
            self._silent_since_s.pop(view.id, None)
            return None
        silent_s = self._clock_s() - self._silent_since_s.setdefault(view.id, self._clock_s())
        if not decide.is_silent_for_good(view, silent_s):
            return None
        del self._silent_since_s[view.id]
        return silent_s

    def _reap(self, view: JobView) -> None:
        self._record.still_leads()
        if self._launcher.reap(view.gang_ref()):
            self._record.released(view)
            self._ending_since_s.pop(view.id, None)

    def reap_orphans(self) -> None:
        """Ends every gang of which SQL knows no unreleased placement.

        The list of gangs is taken first: a placement is stored before its gang starts, so one that is listed and has
        none in SQL afterwards is really nobody's.
        """
        listed = self._launcher.gangs()
        with self._database.read() as session:
            known = placements.unreleased_keys(session)
        for gang in listed:
            if self._stopping.is_set():
                return
            if (gang.job_id, gang.incarnation) not in known:
                self._record.still_leads()
                log.warning("orphan-reaped", job_id=gang.job_id, incarnation=gang.incarnation)
                self._launcher.reap(gang)
        self._forget_ended()

    def _forget_ended(self) -> None:
        """Gives memory back that nodes still keep for jobs that are over: their last supervisor could not."""
        remembered = self._launcher.remembered()  # first: a job is in SQL before it has any
        with self._database.read() as session:
            live = {view.id for view in read_jobs(session)}
        for job_id in remembered:
            if job_id not in live and not self._stopping.is_set():
                self._record.still_leads()
                self._launcher.forget(job_id)

    def _dispatch(self, key: str, act: Callable[..., object], *arguments: object) -> None:
        """Runs an act unless the one before under the same key is still running: a slow gang stalls itself alone."""
        running = self._tasks.get(key)
        if running is not None and not running.done():
            return
        self._tasks[key] = self._executor.submit(self._guarded, key, act, *arguments)
        for done in [name for name, task in self._tasks.items() if task.done()]:
            del self._tasks[done]

    def _guarded(self, key: str, act: Callable[..., object], *arguments: object) -> None:
        """One act. Its trouble is logged and shown on its job, and slows down that job alone."""
        is_job = key not in self._due_s
        try:
            act(*arguments)
        except LeadershipLostError as error:
            self._lost = error
        except FencedError as error:
            log.warning("fenced-by-supervisor", key=key, message=str(error))
            self._lost = LeadershipLostError(self._record.token, None)
        except ClusterUnreachableError as error:
            self._backoff.failed(key)
            log.warning("cluster-unreachable", key=key, message=str(error))
            if is_job:
                self._tell(key, self._show_unreachable, str(error))
        except Exception as error:
            self._backoff.failed(key)
            log.exception("act-failed", key=key)
            if is_job:
                message = f"The controller failed to act on this job and tries again: {type(error).__name__}: {error}"
                self._tell(key, self._record.failed_to_act, message)
        else:
            self._backoff.succeeded(key)

    def _tell(self, job_id: str, write: Callable[[str, str], None], message: str) -> None:
        try:
            write(job_id, message)
        except LeadershipLostError as error:
            self._lost = error
        except Exception:
            log.exception("telling-failed", job_id=job_id)

    def _show_unreachable(self, job_id: str, message: str) -> None:
        with self._database.read() as session:
            view = read_job(session, job_id)
        self._record.job_unreachable(view, f"The cluster gives no answer about this job: {message}")


def _unreadable(error: InvalidSpecError) -> Verdict:
    message = f"The stored job file is none that this version of Atoll takes: {error}"
    return Verdict(JobState.FAILED, Reason.USER_ERROR, message, gang_over=True)
