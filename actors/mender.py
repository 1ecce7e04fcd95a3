"""Carries out the ladder's repairs: fresh agents in place, other nodes for lost ones, or the end of the gang."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from ray.exceptions import RayError

from actors.gang import Gang, StartFailedError
from actors.handover import Handover
from actors.inbox import Inbox
from actors.outage import Outage
from actors.reservations import NodeTooSmallError
from orchestrator.lifecycle.reports import EventKind, GangOrder, Move, NoMove, Outcome
from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import Cause, Failure, NodeLoss
from orchestrator.recovery.fewer import with_replicas
from orchestrator.recovery.ladder import GiveUp, History, Replace, RestartInPlace, Rung, next_repair
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.sections import RecoverySpec


class Write(Protocol):
    """Writes an event of the gang's course."""

    def __call__(
        self, kind: EventKind, message: str, data: Mapping[str, Any] | None = None, at: float | None = None
    ) -> None: ...


class GangOverError(Exception):
    """No rung is left for this gang; caught where its course is run."""

    def __init__(self, outcome: Outcome, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.verdict = outcome, reason, message


class Mender:
    """Knows where the ranks sit now and what the job has been through. Call `repair` while no rank lives."""

    def __init__(
        self,
        order: GangOrder,
        gang: Gang,
        inbox: Inbox,
        times: Timeouts,
        *,
        recovery: RecoverySpec,
        write: Write,
    ) -> None:
        self._gang = gang
        self._inbox = inbox
        self._times = times
        self._recovery = recovery
        self._write = write
        self._outage: Outage | None = None
        self._trains = False
        self.handover = Handover(gang, write, inbox.wake)
        self.history = History.of(order.restarts_used, order.deaths_at_step, order.spent)
        self.slots = order.slots
        self.fabric = order.fabric
        self.document: Mapping[str, Any] = order.spec
        """The job file, with fewer replicas since some were dropped."""
        self.revision = 0
        """Changes of the placement that were carried out."""
        self.lost_nodes: tuple[str, ...] = ()
        """Nodes whose ranks want another place, while the controller is asked for one."""
        self.saved = 0
        """Step of the newest checkpoint that is known of."""
        self.not_started: Mapping[str, str] = {}
        """Why agents did not fork the ranks of the last attempt, by node."""

    def broke(self, at: float) -> None:
        """A failure ended the training, `at`; an outage that goes on began earlier."""
        self._outage = self._outage or Outage(at)
        self._outage.planned = False
        self._trains = False

    def asked_to_make_way(self, at: float) -> None:
        """The ranks are to save and end, so that a slow node can be left."""
        self._outage = Outage(at, planned=True)

    def ready(self) -> float | None:
        """All ranks are ready again: the seconds since the failure, None when there was none."""
        self._trains = True
        if self._outage is None:
            return None
        self._outage.ready_at = time.time()
        return self._outage.seconds(self._outage.ready_at)

    def stepped(self, step: int, at: float) -> None:
        """Step `step` is finished, `at`: what was broken is whole again."""
        if self._outage is not None and self._outage.ready_at is not None:
            self._write(EventKind.REPAIRED, *self._outage.summary(step, at), at)
            self._outage = None

    def take_move(self, answer: Move | NoMove) -> None:
        """The controller's answer; one to another question than the one that is asked is dropped."""
        if answer.revision != self.revision + 1:
            return
        if isinstance(answer, NoMove) and answer.slow:
            self.handover.answered(answer)
        elif self.lost_nodes:
            self._inbox.put(answer)
        elif self._trains:  # else it is told again
            self.handover.answered(answer)
            self._inbox.wake()

    async def repair(self, failure: Failure, step: int) -> None:
        """Climbs the ladder until every node of the gang has an agent. GangOverError when there is no rung left."""
        await self.hand_over()
        trouble: Failure | None = failure
        while trouble is not None:
            repair = next_repair(trouble, step, self.history, self._recovery, saved=self.saved)
            self.history = repair.history
            match repair:
                case GiveUp(reason=reason, message=message):
                    raise GangOverError(Outcome.FAILED, reason, message)
                case RestartInPlace():
                    self._climb(Rung.IN_PLACE, "Restarting all ranks in place.")
                case Replace():
                    await self._replace(repair)
            trouble = await self._staff(trouble)

    async def hand_over(self) -> None:
        """Leaves a slow node, where the controller has stored that; call while no rank lives. GangOverError as
        `repair`."""
        self._trains = False
        move = await self.handover.take()
        if move is None:
            return
        self._climb(Rung(move.rung), move.message, {"passed_over": list(move.passed_over), "planned": True})
        failed = await self._carry_out(move)
        self.history = self.history.replaced_one()
        if failed:
            await self._find_places(tuple(failed), [f"{move.rung}: {why}" for why in failed.values()])

    async def _replace(self, repair: Replace) -> None:
        await self._find_places(repair.lost_nodes, list(repair.passed_over))
        self.history = self.history.repaired()

    async def _find_places(self, nodes: tuple[str, ...], passed_over: list[str]) -> None:
        """Other nodes for lost ones, one answer of the controller after the other, as nodes are lost meanwhile and
        spares fail too."""
        lost = self._since_failure().lost
        lost.update(nodes)
        while lost.intersection(self._gang.nodes):
            asked_at = time.monotonic()
            answer = await self._ask(lost)
            data = {"passed_over": passed_over, "waited_s": round(time.monotonic() - asked_at, 3)}
            if isinstance(answer, NoMove):
                passed_over.append(f"{Rung.SPARE} and {Rung.ELSEWHERE}: {answer.message}")
                self._climb(Rung.REQUEUE, "The gang ends; the whole job is placed again.", data)
                message = f"Lost {', '.join(nodes)}; a new placement is needed: {answer.message}."
                raise GangOverError(Outcome.NODE_LOST, Reason.NODE_LOST, message)
            passed_over += [f"{Rung.SPARE}: {why}" for why in answer.passed_over]
            self._climb(Rung(answer.rung), answer.message, data)
            if failed := await self._carry_out(answer):
                lost.update(failed)
                passed_over += [f"{answer.rung}: {why}" for why in failed.values()]

    async def _carry_out(self, answer: Move) -> dict[str, str]:
        """Why nodes that were to be taken could not be, by node."""
        new = {slot.node for slot in answer.slots}.difference(self._gang.nodes)
        why = ""
        try:
            await self._inbox.unless_asked(self._gang.move(answer.slots))
        except (StartFailedError, NodeTooSmallError, RayError, ValueError) as error:
            why = f": {error}"
        self.slots, self.fabric, self.revision = answer.slots, answer.fabric, answer.revision
        if answer.replicas is not None:
            self.document = with_replicas(self.document, answer.replicas)
        return {node: f"node {node} did not start{why}" for node in new if not self._gang.watches(node)}

    async def _ask(self, lost: set[str]) -> Move | NoMove:
        """The controller's answer to the loss of `lost`, to which nodes are added that are lost meanwhile."""
        deadline = time.monotonic() + self._times.move_s
        try:
            while time.monotonic() < deadline:
                self.lost_nodes = tuple(sorted(lost))
                news = await self._inbox.next(deadline)
                if isinstance(news, NodeLoss) and not news.agent_only:
                    lost.add(news.node)
                elif isinstance(news, Move | NoMove) and news.revision == self.revision + 1:
                    return news
            return NoMove(self.revision + 1, f"the controller gave no answer for {self._times.move_s:.0f} s")
        finally:
            self.lost_nodes = ()

    async def _staff(self, failure: Failure) -> Failure | None:
        """New agents where they are gone or of no use; the failure that follows when one cannot be had."""
        hanging = set(self.not_started)
        if failure.cause is Cause.AGENT_LOST and failure.node is not None:
            hanging.add(failure.node)
        self.not_started = {}
        try:
            await self._inbox.unless_asked(self._gang.replace_agents(hanging.intersection(self._gang.nodes)))
        except StartFailedError as error:
            gone = tuple(node for node in self._gang.nodes if not self._gang.watches(node))
            return Failure(Cause.NODE_LOST, time.time(), str(error), node=gone[0], lost_nodes=gone)
        return None

    def _since_failure(self) -> Outage:
        if self._outage is None:
            self._outage = Outage(time.time())
        return self._outage

    def _climb(self, rung: Rung, message: str, data: Mapping[str, Any] | None = None) -> None:
        self._since_failure().rungs.append(rung.value)
        self._write(EventKind.REPAIR_STARTED, message, {"rung": rung.value, **(data or {})})
