"""The decisions of the reconciler: functions from values to values. No clock, no SQL, no cluster.

Two questions about one job; those about the queue are answered by `orchestrator.queue`:
- `next_act`: given what SQL says of a job, what is to be done about it now?
- `conclude`: given what its supervisor said (or that it is gone), which state is it in?
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from orchestrator.lifecycle.reports import GangPhase, GangReport, Outcome
from orchestrator.lifecycle.said import LARGEST_STEP, whole
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.lifecycle.view import JobView
from orchestrator.recovery.failure import Blame
from orchestrator.recovery.timeouts import SUPERVISOR_SILENT_AT_START_S, SUPERVISOR_SILENT_S
from orchestrator.spec.sections import RecoverySpec


class Act(Enum):
    """What is done about a job in this round."""

    WAIT_FOR_PLACEMENT = auto()
    CANCEL_NOW = auto()
    """Nothing of it runs: it ends as cancelled at once; a placement that may have been started is reaped."""
    START = auto()
    POLL = auto()
    CANCEL_AND_POLL = auto()
    VACATE_AND_POLL = auto()
    """The queue wants its slots back: it is asked to save a checkpoint and end."""
    REAP = auto()
    """Its supervisor is over or its job has ended: what is left goes, then the slots are free."""
    NOTHING = auto()


def next_act(job: JobView) -> Act:
    """The one thing to do about `job`; it depends on what is stored alone, so a crash anywhere changes nothing."""
    if job.gang is None:
        if job.state.is_terminal:
            return Act.NOTHING
        if job.cancel_requested:
            return Act.CANCEL_NOW
        return Act.WAIT_FOR_PLACEMENT
    if job.state.is_terminal:
        return Act.REAP
    if job.cancel_requested and (job.gang.ended or not job.gang.started):
        return Act.CANCEL_NOW
    if job.gang.ended:
        return Act.REAP
    if not job.gang.started:
        return Act.START
    if job.cancel_requested:
        return Act.CANCEL_AND_POLL
    return Act.POLL if job.gang.vacate_reason is None else Act.VACATE_AND_POLL


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state a job is in now."""

    state: JobState
    reason: Reason
    message: str
    gang_over: bool = False
    """Its supervisor is over: the placement is to be reaped."""


def wants_answer(job: JobView, report: GangReport) -> bool:
    """Whether the supervisor is to be told where ranks go: it has lost nodes, or it trains and would do without a slow
    one, or has not carried out what is stored."""
    if report.lost_nodes:
        return True
    behind = job.gang is not None and job.gang.revision == report.revision + 1
    return report.phase is GangPhase.RUNNING and (report.unwanted is not None or behind)


_STATE_OF_PHASE = {
    GangPhase.STARTING: JobState.STARTING,
    GangPhase.RUNNING: JobState.RUNNING,
    GangPhase.RECOVERING: JobState.RECOVERING,
    GangPhase.STOPPING: JobState.STOPPING,
}


def conclude(job: JobView, report: GangReport) -> Verdict:
    """The state that follows from a supervisor's report. Of the budgets of repair the supervisor knows."""
    step = shown_step(job, report)
    if report.phase is not GangPhase.ENDED:
        if job.cancel_requested:
            return Verdict(JobState.STOPPING, Reason.CANCELLED_BY_USER, "The job is being cancelled.")
        if job.gang is not None and job.gang.vacate_reason is not None:
            return Verdict(JobState.STOPPING, job.gang.vacate_reason, job.gang.vacate_message)
        return Verdict(_STATE_OF_PHASE[report.phase], reason_of(report.reason), report.message)
    match report.outcome:
        case Outcome.SUCCEEDED:
            return Verdict(JobState.SUCCEEDED, Reason.COMPLETED, report.message, gang_over=True)
        case Outcome.CANCELLED:
            return _cancelled()
        case Outcome.VACATED:
            return _interrupted(job, step, Reason.PREEMPTED, report.message)
        case Outcome.NODE_LOST:
            message = report.message or "A node of the job was lost."
            return _interrupted(job, step, Reason.NODE_LOST, message)
        case Outcome.FAILED | Outcome.START_FAILED | None if job.cancel_requested:
            return _cancelled()
        case Outcome.START_FAILED:
            reason = reason_of(report.reason, otherwise=Reason.START_TIMED_OUT)
            return Verdict(JobState.FAILED, reason, report.message, gang_over=True)
        case _:
            reason = reason_of(report.reason, otherwise=Reason.RANK_DIED)
            return Verdict(JobState.FAILED, reason, report.message, gang_over=True)


def shown_step(job: JobView, report: GangReport) -> int:
    """Newest finished step; a supervisor that has not trained yet knows none, so the one known before stays."""
    return whole(report.step, LARGEST_STEP) or job.step


def is_silent_for_good(job: JobView, silent_s: float) -> bool:
    """Whether a supervisor that gives no answer, on a cluster that does, is to be ended by force."""
    assert job.gang is not None
    answered = job.gang.event_cursor > 0
    return silent_s >= (SUPERVISOR_SILENT_S if answered else SUPERVISOR_SILENT_AT_START_S)


def conclude_gone(job: JobView, recovery: RecoverySpec, *, silent_s: float | None = None) -> Verdict:
    """The state after the supervisor was found dead, or silent for `silent_s`: a failure of hardware, which nobody but
    the controller counts."""
    message = "The supervisor of the job died; its ranks end with it."
    if silent_s is not None:
        message = f"The supervisor of the job gave no answer for {silent_s:.0f} s, so it was ended by force."
    verdict = _interrupted(job, job.step, Reason.SUPERVISOR_LOST, message)
    if verdict.state is JobState.RECOVERING:
        used = job.spent.get(Blame.HARDWARE.value, 0)
        if used >= (allowed := recovery.max_hardware_failures):
            spent = f"{message} No repair is left: recovery.max_hardware_failures is {allowed}."
            return Verdict(JobState.FAILED, Reason.RETRY_BUDGET_SPENT, spent, gang_over=True)
    return verdict


def conclude_not_ending(job: JobView, waited_s: float) -> Verdict:
    """A job that was to end and whose supervisor did not end it in time: the controller ends it by force."""
    message = f"the supervisor had not ended the job after {waited_s:.0f} s, so it was ended by force."
    if job.cancel_requested:
        message = f"Cancelled; {message}"
        return Verdict(JobState.CANCELLED, Reason.CANCELLED_BY_USER, message, gang_over=True)
    assert job.gang is not None
    assert job.gang.vacate_reason is not None
    return _vacated(job.step, job.gang.vacate_reason, f"{job.gang.vacate_message} Then {message}")


def _cancelled() -> Verdict:
    return Verdict(JobState.CANCELLED, Reason.CANCELLED_BY_USER, "Cancelled by a user.", gang_over=True)


def _interrupted(job: JobView, step: int, reason: Reason, message: str) -> Verdict:
    if job.cancel_requested:
        return _cancelled()
    if job.gang is not None and job.gang.vacate_reason is not None:
        return _vacated(step, job.gang.vacate_reason, f"{job.gang.vacate_message} {message}")
    return Verdict(JobState.RECOVERING, reason, message, gang_over=True)


def _vacated(step: int, reason: Reason, message: str) -> Verdict:
    """The queue has its slots back: a preempted job waits again and resumes, one that reached its limit has failed."""
    if reason is Reason.PREEMPTED:
        sentence = f"Preempted after step {step}. {message}"
        return Verdict(JobState.QUEUED, reason, sentence, gang_over=True)
    return Verdict(JobState.FAILED, reason, f"Stopped after step {step}. {message}", gang_over=True)


def reason_of(text: str, *, otherwise: Reason = Reason.NONE) -> Reason:
    """The reason a supervisor named; `otherwise` for none or for one this program does not know."""
    try:
        named = Reason(text)
    except ValueError:
        return otherwise
    return otherwise if named is Reason.NONE else named
