"""The ladder of repairs: a failure and what is left of the budgets -> the next repair, as a value.

Rungs, cheapest first: start the ranks again where they are; ask for a placement without the lost nodes; give up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import Cause, Failure
from orchestrator.spec.sections import RecoverySpec

_OWN = frozenset({Cause.EXCEPTION, Cause.INPUT})
"""Causes that lie in the rank program or in what it was given."""


@dataclass(frozen=True, slots=True)
class History:
    """What the job has been through, over all its supervisors."""

    restarts_used: int = 0
    step: int = 0
    """Newest step reached by the time of the last death: progress is going past it."""
    deaths: int = 0
    """Deaths since then, the first one at `step` included."""
    exceptions: int = 0
    """How many of the last deaths in a row were exceptions of the rank program."""
    hangs: int = 0
    """How many of the deaths since `step` in a row were hangs."""

    def after(self, failure: Failure, step: int) -> History:
        """The history with `failure` at `step` added."""
        progressed = self.deaths == 0 or step > self.step
        own = failure.cause in _OWN
        exceptions = (0 if progressed else self.exceptions) + 1 if own else 0
        hangs = (0 if progressed else self.hangs) + 1 if failure.cause is Cause.HUNG else 0
        return replace(
            self,
            step=step if progressed else self.step,
            deaths=1 if progressed else self.deaths + 1,
            exceptions=exceptions,
            hangs=hangs,
        )


@dataclass(frozen=True, slots=True)
class RestartInPlace:
    """Fresh ranks on the same slots, from the newest checkpoint."""

    history: History


@dataclass(frozen=True, slots=True)
class Replace:
    """The gang ends; the controller places the job again without the lost nodes, and counts the restart then."""

    history: History
    lost_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    history: History
    reason: Reason
    message: str


Repair = RestartInPlace | Replace | GiveUp


def next_repair(failure: Failure, step: int, history: History, recovery: RecoverySpec) -> Repair:
    """The repair for `failure`, which struck when the newest finished step was `step`."""
    never_ran = (history.restarts_used, history.deaths, step) == (0, 0, 0)
    history = history.after(failure, step)
    if never_ran and failure.cause is Cause.INPUT:
        # It would be refused again. A job that has run was given good input once, so that one tries again.
        message = f"{failure.summary}; this was before the first step, and a restart would not change it"
        return GiveUp(history, Reason.USER_ERROR, _with_traceback(message, failure))
    if history.deaths >= recovery.max_restarts_at_step:
        return _stuck(failure, history)
    if history.restarts_used >= recovery.max_restarts:
        reason = Reason.RETRY_BUDGET_SPENT
        if failure.cause in _OWN and history.exceptions == history.restarts_used + 1:
            reason = Reason.USER_ERROR  # nothing but the program's own exceptions, from the first attempt on
        message = f"{failure.summary}; all {recovery.max_restarts} restarts of recovery.max_restarts are used"
        return GiveUp(history, reason, _with_traceback(message, failure))
    if failure.cause is Cause.NODE_LOST:
        return Replace(history, failure.lost_nodes)
    return RestartInPlace(replace(history, restarts_used=history.restarts_used + 1))


def _stuck(failure: Failure, history: History) -> GiveUp:
    # One hang may be the hardware's; where nothing else ever happens it is the program's.
    own = max(history.exceptions, history.hangs) >= history.deaths
    reason = Reason.USER_ERROR if own else Reason.NO_PROGRESS
    message = f"{failure.summary}; death {history.deaths} after step {history.step} without progress between"
    return GiveUp(history, reason, _with_traceback(message, failure))


def _with_traceback(message: str, failure: Failure) -> str:
    return f"{message}\n\n{failure.traceback.rstrip()}" if failure.traceback else message
