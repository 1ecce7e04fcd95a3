"""The ladder of repairs: a failure and what is left of the budgets -> the next repair, as a value.

Rungs, cheapest first: start the ranks again where they are; a spare node near the lost one takes over its ranks; the
part that lost nodes is placed again elsewhere; the job goes on without that part; the whole job is placed again; it
fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import Blame, Cause, Failure, blame_of
from orchestrator.spec.sections import RecoverySpec


class Rung(StrEnum):
    """Repairs, cheapest first."""

    IN_PLACE = "in-place"
    """Fresh ranks on the same slots."""
    SPARE = "spare"
    """A spare node of the same leaf or island takes over from a lost one; agents of the others stay."""
    ELSEWHERE = "elsewhere"
    """The pipelines that lost ranks are placed again; agents of the others stay."""
    FEWER_REPLICAS = "fewer-replicas"
    """The replicas that lost ranks are dropped; the others do the whole batch."""
    REQUEUE = "requeue"
    """The gang ends, and the whole job waits for a placement."""


@dataclass(frozen=True, slots=True)
class History:
    """What the job has been through, over all its supervisors."""

    restarts_used: int = 0
    """Repairs so far, whatever for: shown, and no limit."""
    step: int = 0
    """Newest step reached by the time of the last death: progress is going past it."""
    deaths: int = 0
    """Deaths since then that hardware is not to blame for, the first one at `step` included."""
    own: int = 0
    """How many of these were the program's own fault."""
    saved: int = 0
    """Step of the newest checkpoint by the time of the last failure: a newer one fills the budgets again."""
    spent: Mapping[Blame, int] = field(default_factory=dict)
    """Failures since that checkpoint, by whom they are blamed on."""
    replaced: int = 0
    """Slow nodes that the job has done without: no failures."""

    def after(self, failure: Failure, step: int, saved: int) -> History:
        """The history with `failure` at `step` added; `saved` is the step of the newest checkpoint."""
        blame = blame_of(failure)
        progressed = self.deaths == 0 or step > self.step
        deaths, own = (0, 0) if progressed else (self.deaths, self.own)
        spent = {} if saved > self.saved else self.spent
        return replace(
            self,
            step=step if progressed else self.step,
            deaths=deaths + (blame is not Blame.HARDWARE),
            own=own + (blame is Blame.PROGRAM),
            saved=max(saved, self.saved),
            spent={**spent, blame: spent.get(blame, 0) + 1},
        )

    def repaired(self) -> History:
        return replace(self, restarts_used=self.restarts_used + 1)

    def replaced_one(self) -> History:
        return replace(self, replaced=self.replaced + 1)

    def carried(self, saved: int = 0) -> dict[str, int]:
        """What the next supervisor needs of it beside repairs and deaths, as JSON values; `saved`: step of the newest
        checkpoint by now."""
        spent = {} if saved > self.saved else {blame.value: n for blame, n in self.spent.items()}
        replaced = {"replaced": self.replaced} if self.replaced else {}
        return {"own": self.own, "saved": max(saved, self.saved), **replaced, **spent}

    @classmethod
    def of(
        cls, restarts_used: int, deaths_at_step: tuple[int, int], carried: Mapping[str, int] | None
    ) -> History:
        """From what an earlier supervisor left."""
        kept = carried or {}
        spent = {blame: kept[blame.value] for blame in Blame if blame.value in kept}
        own, saved, replaced = (kept.get(name, 0) for name in ("own", "saved", "replaced"))
        return cls(restarts_used, *deaths_at_step, own, saved, spent, replaced)


@dataclass(frozen=True, slots=True)
class RestartInPlace:
    """Fresh ranks on the same slots, from the newest checkpoint."""

    history: History


@dataclass(frozen=True, slots=True)
class Replace:
    """The ranks of lost nodes want another place: the nearest that the controller, who owns the slots, can give.

    Where it gives none, or none in time, the gang ends and the whole job is placed again.
    """

    history: History
    lost_nodes: tuple[str, ...]
    passed_over: tuple[str, ...]
    """Why no cheaper rung, a sentence each."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    history: History
    reason: Reason
    message: str


Repair = RestartInPlace | Replace | GiveUp


def next_repair(
    failure: Failure, step: int, history: History, recovery: RecoverySpec, *, saved: int = 0
) -> Repair:
    """The repair for `failure`, which struck when the newest finished step was `step` and the newest checkpoint that
    of step `saved`."""
    never_ran = (history.restarts_used, history.deaths, step) == (0, 0, 0)
    history = history.after(failure, step, saved)
    if never_ran and failure.cause is Cause.INPUT:
        # It would be refused again. A job that has run was given good input once, so that one tries again.
        message = f"{failure.summary}; this was before the first step, and a restart would not change it"
        return GiveUp(history, Reason.USER_ERROR, _with_traceback(message, failure))
    blame = blame_of(failure)
    if blame is not Blame.HARDWARE and history.deaths >= recovery.max_restarts_at_step:
        return _stuck(failure, history)
    if (over := over_budget(history, blame, recovery)) is not None:
        reason = Reason.USER_ERROR if blame is Blame.PROGRAM else Reason.RETRY_BUDGET_SPENT
        return GiveUp(history, reason, _with_traceback(f"{failure.summary}; {over}", failure))
    if failure.cause is Cause.NODE_LOST:
        return Replace(history, failure.lost_nodes, (f"{Rung.IN_PLACE}: {failure.summary}",))
    return RestartInPlace(history.repaired())


def over_budget(history: History, blame: Blame, recovery: RecoverySpec) -> str | None:
    """What is used up, if the last failure was one too many of its kind since the newest checkpoint."""
    name = "max_hardware_failures" if blame is Blame.HARDWARE else "max_restarts"
    allowed: int = getattr(recovery, name)
    if history.spent.get(blame, 0) <= allowed:
        return None
    since = f"since the checkpoint of step {history.saved}" if history.saved else "without a checkpoint"
    return f"the {allowed} repairs that recovery.{name} allows {since} are used ({_BLAMED[blame]})"


_BLAMED = {
    Blame.PROGRAM: "the program's own failures",
    Blame.RANK: "ranks that died or stood still",
    Blame.HARDWARE: "nodes and network",
}


def _stuck(failure: Failure, history: History) -> GiveUp:
    reason = Reason.USER_ERROR if history.own >= history.deaths else Reason.NO_PROGRESS
    message = f"{failure.summary}; death {history.deaths} after step {history.step} without progress between"
    return GiveUp(history, reason, _with_traceback(message, failure))


def _with_traceback(message: str, failure: Failure) -> str:
    return f"{message}\n\n{failure.traceback.rstrip()}" if failure.traceback else message
