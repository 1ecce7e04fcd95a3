"""The course of one gang: start, certificate, training, repair by the ladder, end.

Decisions come from `orchestrator.recovery` and the certificate; this carries them out and writes the journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from ray.exceptions import RayError

from actors.attempt import Attempt
from actors.gang import Gang, RanksNotStartedError, StartFailedError
from actors.hang_watch import HangWatch
from actors.health_watch import HealthWatch
from actors.inbox import EndedOnRequestError, EndRequest, Inbox
from actors.journal import Journal
from actors.mender import GangOverError, Mender
from actors.messages import Note, NoteKind, RankOrder
from actors.reservations import NodeTooSmallError
from actors.vault.job import Vaults
from orchestrator.health.hang import Hang
from orchestrator.health.pace import Pace
from orchestrator.lifecycle.reports import (
    EventKind,
    GangOrder,
    GangPhase,
    LogTail,
    Outcome,
    RankFacts,
    Unwanted,
)
from orchestrator.lifecycle.said import real
from orchestrator.lifecycle.states import Reason
from orchestrator.placement.certificate import certify
from orchestrator.placement.explain import counted
from orchestrator.placement.mesh import Mesh
from orchestrator.recovery.failure import Cause, Failure, NodeLoss
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.job import JobSpec

LOGS_LIMIT_BYTES = 16 << 20
"""Kept of the logs of all attempts; beyond it the oldest attempts' go."""


_KINDS = {Cause.NODE_LOST: EventKind.NODE_LOST, Cause.HUNG: EventKind.HUNG}
"""Events of failures that are no death of a rank, and the reason of the job meanwhile."""
_REASONS = {Cause.NODE_LOST: Reason.NODE_LOST, Cause.HUNG: Reason.HUNG}


class MadeWay:
    """All ranks of an attempt have saved and ended because they were asked to, so that a slow node can be left."""


class NotCertifiedError(RuntimeError):
    """The ranks do not sit where they were placed."""


class Course:
    def __init__(self, order: GangOrder, times: Timeouts) -> None:
        self._order = order
        self._times = times
        self._spec = JobSpec.model_validate(dict(order.spec))
        self._inbox = Inbox()
        self._gang = Gang(order, times, self._inbox.put)
        self._vaults = Vaults(order, self._spec)
        self._attempt = Attempt(order.first_attempt, order.slots)
        self.mender = Mender(
            order, self._gang, self._inbox, times, recovery=self._spec.recovery, write=self._write
        )
        self._pace = Pace(times)
        self.journal = Journal()
        self.health = HealthWatch(self._write, self._spec)
        self.phase = GangPhase.STARTING
        self.step = 0
        """Newest finished step, over all attempts of this supervisor."""
        self.ranks: tuple[RankFacts, ...] = ()
        self.logs: tuple[LogTail, ...] = ()
        self._saves = True
        """The newest checkpoint was written."""
        self.outcome: Outcome | None = None
        self.reason = Reason.NONE
        self.message = ""

    @property
    def attempt(self) -> int:
        return self._attempt.number

    @property
    def unwanted(self) -> Unwanted | None:
        """A slow node that the gang would go on without, while it trains."""
        if self.phase is not GangPhase.RUNNING:
            return None
        mender = self.mender
        return mender.handover.unwanted(
            self.health.unwanted, replaced=mender.history.replaced, saves=self._saves
        )

    def cancel(self) -> None:
        """Ends the gang soon; a gang that has ended stays as it is."""
        message, grace_s = "Cancelled by a user.", self._times.kill_grace_s
        self._inbox.ask(EndRequest(Outcome.CANCELLED, Reason.CANCELLED_BY_USER, message, grace_s))

    def vacate(self, grace_s: float) -> None:
        """Ends the gang once its ranks have saved a checkpoint, after `grace_s` in any case; asking again changes
        nothing."""
        if self._inbox.asked is None:
            self._inbox.ask(
                EndRequest(Outcome.VACATED, Reason.PREEMPTED, "The slots were given back.", grace_s)
            )

    async def read_log(self, *, rank: int, attempt: int | None, offset: int, limit: int) -> Any:
        return await self._gang.read_log(
            rank=rank, attempt=attempt or self.attempt, offset=offset, limit=limit
        )

    async def run(self) -> None:
        """The whole course; whatever happens, it ends with an outcome and with the slots given back."""
        try:
            outcome, reason, message = await self._live()
        except GangOverError as over:
            outcome, reason, message = over.verdict
        except EndedOnRequestError as ended:
            asked = ended.request
            outcome, reason, message = asked.outcome, asked.reason, asked.message
            if asked.outcome is Outcome.VACATED and self.step:
                message += kept(
                    self.step, self.mender.saved, asked.grace_s, by_themselves=self._attempt.finished
                )
        except NodeTooSmallError as error:
            outcome, reason, message = Outcome.START_FAILED, Reason.NEVER_FITS, f"Not started: {error}."
        except StartFailedError as error:
            outcome, reason, message = Outcome.START_FAILED, Reason.START_TIMED_OUT, f"Not started: {error}."
        except NotCertifiedError as error:
            outcome, reason, message = Outcome.START_FAILED, Reason.PLACEMENT_NOT_CERTIFIED, str(error)
        except Exception as error:
            # A defect of ours or an error of Ray nobody foresaw: the slots are given back all the same.
            outcome, reason = Outcome.FAILED, Reason.SUPERVISOR_LOST
            message = f"The supervisor failed: {type(error).__name__}: {error}"
        await self._end(outcome, reason, message)

    async def stop(self) -> None:
        """Gives everything back without further ado: the supervisor's lease ran out."""
        await self._gang.close()

    async def _live(self) -> tuple[Outcome, Reason, str]:
        try:
            await self._inbox.unless_asked(asyncio.gather(self._gang.open(), self._vaults.start()))
        except (RayError, ValueError) as error:
            raise StartFailedError(str(error)) from error
        while (end := await self._run_attempt()) is not None:
            await (
                self.mender.hand_over() if isinstance(end, MadeWay) else self.mender.repair(end, self.step)
            )
            self._attempt = Attempt(self.attempt + 1, self.mender.slots)
            self.ranks = ()
        return Outcome.SUCCEEDED, Reason.COMPLETED, f"Completed {self.step} steps."

    async def _run_attempt(self) -> Failure | MadeWay | None:
        """Runs the ranks once; None when all of them succeeded. No rank of it lives when this returns; those of an
        attempt that is given up end with the gang."""
        attempt = self._attempt
        self._write(
            EventKind.ATTEMPT_STARTED,
            f"Attempt {attempt.number}: starting {counted(attempt.world_size, 'rank')}.",
        )
        try:
            end = await self._drive(attempt)
        except (EndedOnRequestError, NotCertifiedError) as error:
            asked = error.request if isinstance(error, EndedOnRequestError) else None
            await self._halt(attempt, grace_s=asked.grace_s if asked else 0.0)
            outcome = asked.outcome.value if asked else "not-certified"
            self._write(EventKind.ATTEMPT_ENDED, f"Attempt {attempt.number} ended.", self._ended(outcome))
            raise
        if end is None:
            self.mender.stepped(self.step, time.time())
            self._write(
                EventKind.ATTEMPT_ENDED, f"Attempt {attempt.number} succeeded.", self._ended("succeeded")
            )
            await self._keep_logs(attempt.number)
            return None
        self.phase = GangPhase.RECOVERING
        if isinstance(end, MadeWay):
            self.message = "A slow node is being left."
            saved = kept(self.step, self.mender.saved, 0.0, by_themselves=True)
            message = f"Attempt {attempt.number} ended to leave a slow node.{saved}"
            self._write(EventKind.ATTEMPT_ENDED, message, self._ended("made-way"))
            await self._keep_logs(attempt.number)
            return end
        failure = end
        self.reason = _REASONS.get(failure.cause, Reason.RANK_DIED)
        self.message = failure.summary
        self.mender.broke(failure.at)
        await self._gang.kill_ranks(attempt.number, failure.lost_nodes)
        self._take_late_notes(attempt)
        self._tell_failure(failure)
        await self._keep_logs(attempt.number)
        return failure

    async def _drive(self, attempt: Attempt) -> Failure | MadeWay | None:
        """From the fork to the end of the attempt's ranks."""
        self._take_losses(attempt)
        if (known := attempt.failure(settled=False)) is not None:
            return known
        mender = self.mender
        vaults = await self._inbox.unless_asked(
            self._vaults.open(attempt.number, mender.slots, mender.fabric)
        )
        forked = await self._fork(self._rank_order(attempt.number, vaults))
        trouble_since = None if forked else time.monotonic()
        phase_ends = time.monotonic() + self._times.ranks_start_s
        hangs: HangWatch | None = None
        certified = asked_to_end = False
        began_s = time.monotonic()
        while True:
            wake = hangs.look_at if hangs is not None else phase_ends
            if trouble_since is not None:
                wake = trouble_since + self._times.settle_s
            news = await self._inbox.next(wake)
            if isinstance(news, Note) and news.attempt == attempt.number:
                self._take(attempt, news)
                if hangs is not None:
                    hangs.told()
            elif isinstance(news, NodeLoss) and news.node in self._gang.nodes:
                attempt.lose(news)
            if attempt.finished:
                return MadeWay() if asked_to_end and self.step < self._spec.training.steps else None
            if attempt.troubled or trouble_since is not None:
                trouble_since = trouble_since or time.monotonic()
                if (failure := self._explain(attempt, trouble_since)) is not None:
                    return failure
                continue
            if attempt.all_said_hello and not certified:
                await self._certify(attempt)
                certified = True
                phase_ends = time.monotonic() + self._times.build_s
            if hangs is not None:
                asked_to_end = asked_to_end or await self._make_way(attempt)
                if time.monotonic() < hangs.look_at:
                    continue
                if hang := await self._inbox.unless_asked(hangs.look(attempt.awaited)):
                    return _of_hang(hang, attempt)
            elif certified and attempt.all_ready:
                self._begin_training(attempt, time.monotonic() - began_s)
                hangs = HangWatch(self._gang, attempt.number, self._pace, self._times)
            elif time.monotonic() >= phase_ends:
                return Failure(Cause.TIMED_OUT, time.time(), _waited(attempt, certified=certified))

    async def _make_way(self, attempt: Attempt) -> bool:
        """Asks the ranks to save and end, once the nodes are ready that some of them are to go to."""
        handover = self.mender.handover
        handover.prepare()
        if not handover.is_prepared:
            return False
        self.mender.asked_to_make_way(time.time())
        await self._inbox.unless_asked(self._gang.ask_to_stop(attempt.number))
        return True

    def _explain(self, attempt: Attempt, trouble_since: float) -> Failure | None:
        """The root cause of what began at `trouble_since`; None while it may still arrive."""
        settled = time.monotonic() >= trouble_since + self._times.settle_s
        failure = attempt.failure(settled=settled)
        if failure is None and settled:  # nobody died: agents did not fork, and no more is known
            not_started = self.mender.not_started
            told = [f"the agent of node {node} {why}" for node, why in not_started.items()]
            more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
            node = next(iter(not_started), None)
            failure = Failure(Cause.AGENT_LOST, time.time(), "; ".join(told[:3]) + more, node=node)
        return failure

    async def _fork(self, order: RankOrder) -> bool:
        """False when an agent did not fork its ranks: its loss is on its way, or it hangs."""
        try:
            await self._inbox.unless_asked(self._gang.start_ranks(order))
        except RanksNotStartedError as error:
            self.mender.not_started = error.nodes
            return False
        return True

    def _take(self, attempt: Attempt, note: Note) -> None:
        attempt.take(note)
        if note.kind is NoteKind.STEP:
            step = self.journal.step(attempt.number, note.data, note.at)
            self.step = max(self.step, step)
            self._pace.took(note.data["step"], real(note.data["step_time_s"]))
            self.mender.stepped(step, note.at)
        elif note.kind is NoteKind.PHASES:
            self.health.take(note.data)
        elif note.kind is NoteKind.EVENT:
            self._pass_on(note)

    def _pass_on(self, note: Note) -> None:
        """An event that a rank program reported; a kind nobody knows is named, not lost."""
        data: Mapping[str, Any] = note.data["data"]
        try:
            kind = EventKind(note.data["kind"])
        except ValueError:
            kind, data = EventKind.EVALUATED, {**data, "kind": note.data["kind"]}
        self.journal.event(kind, note.attempt, note.data["message"], data, note.at)
        if kind is EventKind.SNAPSHOT_KEPT:
            self._vaults.renewed()
        if isinstance(step := data.get("step"), int):
            if kind is EventKind.RESUMED:
                self.step = max(self.step, step)
            if kind in (EventKind.CHECKPOINT_COMMITTED, EventKind.CHECKPOINT_FAILED):
                self._saves = kind is EventKind.CHECKPOINT_COMMITTED
            if kind in (EventKind.RESUMED, EventKind.CHECKPOINT_COMMITTED):
                self.mender.saved = max(self.mender.saved, step)

    def _take_losses(self, attempt: Attempt) -> None:
        """What was lost before the attempt began; whatever else is waiting is about earlier attempts, the loss of an
        agent that has been replaced since, or of a node that was left, included."""
        for news in self._inbox.drain():
            if (
                isinstance(news, NodeLoss)
                and news.node in self._gang.nodes
                and not self._gang.watches(news.node)
            ):
                attempt.lose(news)

    def _take_late_notes(self, attempt: Attempt) -> None:
        """Steps and events said before the ranks were ended; deaths no more, since those are our own doing. Losses of
        nodes are kept: they are why there is more to repair."""
        losses = []
        for news in self._inbox.drain():
            if isinstance(news, NodeLoss):
                losses.append(news)
            elif (
                isinstance(news, Note)
                and news.attempt == attempt.number
                and news.kind in (NoteKind.STEP, NoteKind.EVENT)
            ):
                self._take(attempt, news)
        for loss in losses:
            self._inbox.put(loss)

    async def _certify(self, attempt: Attempt) -> None:
        facts = tuple(attempt.facts[rank] for rank in sorted(attempt.facts))
        certificate = certify(
            self.mender.slots,
            Mesh.of(JobSpec.model_validate(dict(self.mender.document)).parallelism),
            self._spec.placement,
            self.mender.fabric,
            facts,
        )
        if not certificate.ok:
            sentence = "; ".join(certificate.violations)
            self._write(EventKind.CERTIFICATE_REFUSED, f"Refused: {sentence}", certificate.as_json())
            raise NotCertifiedError(f"The placement is not certified: {sentence}")
        self.ranks = facts
        self._write(EventKind.CERTIFIED, "Every rank sits where it was placed.", certificate.as_json())
        await self._gang.go(attempt.number)

    def _begin_training(self, attempt: Attempt, start_s: float) -> None:
        since_failure = self.mender.ready()
        data = {} if since_failure is None else {"seconds": since_failure}
        self._pace.begin_attempt()
        self.health.begin(attempt.number, attempt.slots, start_s=start_s)
        self._write(EventKind.TRAINING_STARTED, f"{counted(attempt.world_size, 'rank')} ready.", data)
        self.phase, self.reason, self.message = GangPhase.RUNNING, Reason.NONE, ""

    def _tell_failure(self, failure: Failure) -> None:
        data = {
            **failure.details,
            "cause": failure.cause.value,
            "rank": failure.rank,
            "node": failure.node,
            "step": self.step,
            "followers": list(failure.followers),
            "traceback": failure.traceback,
        }
        kind = _KINDS.get(failure.cause, EventKind.RANK_DIED)
        sentence = failure.summary[:1].upper() + failure.summary[1:] + "."
        self._write(kind, sentence, data, failure.at)
        self._write(
            EventKind.ATTEMPT_ENDED,
            f"Attempt {self.attempt} ended: {failure.summary}.",
            self._ended(failure.cause.value),
        )

    def _ended(self, outcome: str) -> dict[str, Any]:
        return {"outcome": outcome, "step": self.step}

    async def _halt(self, attempt: Attempt, *, grace_s: float) -> None:
        """Lets ranks that are asked to stop end by themselves; the gang ends the others when it closes."""
        self.phase = GangPhase.STOPPING
        if grace_s > 0 and attempt.all_ready:
            await self._gang.ask_to_stop(attempt.number)
            deadline = time.monotonic() + grace_s
            while len(attempt.gone) < attempt.world_size and time.monotonic() < deadline:
                news = await self._inbox.next_even_if_asked(deadline)
                if isinstance(news, Note) and news.attempt == attempt.number:
                    self._take(attempt, news)
        await self._keep_logs(attempt.number)

    async def _keep_logs(self, attempt: int) -> None:
        self.logs = (*self.logs, *await self._gang.tails(attempt))
        while (
            len(self.logs) > len(self.mender.slots) and sum(len(t.text) for t in self.logs) > LOGS_LIMIT_BYTES
        ):
            oldest = self.logs[0].attempt
            self.logs = tuple(tail for tail in self.logs if tail.attempt != oldest)

    async def _end(self, outcome: Outcome, reason: Reason, message: str) -> None:
        self.phase = GangPhase.STOPPING
        try:
            await self._gang.close()
            if outcome is not Outcome.NODE_LOST:  # else the job is placed again, and goes on from them
                await self._vaults.close()
        finally:
            self._write(EventKind.FINISHED, f"The gang ended: {outcome.value}.", {"outcome": outcome.value})
            self.outcome, self.reason, self.message = outcome, reason, message
            self.phase = GangPhase.ENDED

    def _write(
        self, kind: EventKind, message: str, data: Mapping[str, Any] | None = None, at: float | None = None
    ) -> None:
        self.journal.event(kind, self.attempt, message, data, at)

    def _rank_order(self, attempt: int, vaults: Mapping[str, Any]) -> RankOrder:
        cpus = self._spec.resources.cpus_per_rank
        return RankOrder(
            job_id=self._order.job_id,
            incarnation=self._order.incarnation,
            attempt=attempt,
            ranks=(),
            slots=self.mender.slots,
            program=self._order.program,
            spec=self.mender.document,
            job_directory=self._order.job_directory,
            rendezvous=("", 0),
            timeout_s=self._times.collective_s,
            threads=max(1, int(cpus)),
            extras={**self._order.extras, **vaults},
        )


def kept(step: int, saved: int, grace_s: float, *, by_themselves: bool) -> str:
    """What is left of a gang that was to save a checkpoint and end, to stand behind a sentence: it has trained up to
    `step`, the newest checkpoint it told of is that of step `saved`."""
    if saved >= step:
        return f" The checkpoint of step {saved} has all of it."
    lost = "1 step" if step - saved == 1 else f"{step - saved} steps"
    if by_themselves:
        return f" Its ranks ended by themselves and told of no checkpoint of the last {lost}."
    return f" Not all ranks had saved and ended within {grace_s:g} s: {lost} since step {saved} are lost."


def _of_hang(hang: Hang, attempt: Attempt) -> Failure:
    rank = hang.missing[0] if hang.missing else None
    node = attempt.slots[rank].node if rank is not None else None
    return Failure(Cause.HUNG, time.time(), hang.summary, rank, node, traceback=hang.stack, details=hang.data)


def _waited(attempt: Attempt, *, certified: bool) -> str:
    """What an attempt that ran out of time before its training was waiting for."""
    missing = set(range(attempt.world_size)).difference(attempt.ready if certified else attempt.facts)
    what = "became ready" if certified else "said hello"
    return f"ranks {sorted(missing)[:8]} never {what}"
