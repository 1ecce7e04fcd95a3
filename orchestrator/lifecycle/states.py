"""States of a job and the reasons for them."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """`queued -> starting -> running <-> recovering -> stopping -> succeeded | failed | cancelled`.

    A preempted job goes from `stopping` back to `queued`.
    """

    is_terminal: bool
    holds_slots: bool

    def __new__(cls, value: str, is_terminal: bool = False, holds_slots: bool = False) -> JobState:
        member = str.__new__(cls, value)
        member._value_ = value
        member.is_terminal = is_terminal
        member.holds_slots = holds_slots
        return member

    QUEUED = ("queued", False, False)
    STARTING = ("starting", False, True)
    RUNNING = ("running", False, True)
    RECOVERING = ("recovering", False, True)
    STOPPING = ("stopping", False, True)
    SUCCEEDED = ("succeeded", True, False)
    FAILED = ("failed", True, False)
    CANCELLED = ("cancelled", True, False)


def end_state(text: str) -> JobState | None:
    """The stored state when the job is over. None also for one that a newer version wrote: it is not known to end."""
    try:
        state = JobState(text)
    except ValueError:
        return None
    return state if state.is_terminal else None


class Reason(StrEnum):
    """Why a job is in its state; the sentence for people is a separate field."""

    NONE = "none"
    WAITING_FOR_CONTROLLER = "waiting-for-controller"
    NO_ROOM = "no-room"
    NEVER_FITS = "never-fits"
    OVER_QUOTA = "over-quota"
    RESERVED = "reserved"
    """It would fit on accelerators that are kept for a job ahead of it."""
    PREEMPTED = "preempted"
    TIME_LIMIT = "time-limit"
    CLUSTER_UNREACHABLE = "cluster-unreachable"
    RANK_DIED = "rank-died"
    NODE_LOST = "node-lost"
    HUNG = "hung"
    SUPERVISOR_LOST = "supervisor-lost"
    PLACEMENT_NOT_CERTIFIED = "placement-not-certified"
    START_TIMED_OUT = "start-timed-out"
    RETRY_BUDGET_SPENT = "retry-budget-spent"
    NO_PROGRESS = "no-progress"
    USER_ERROR = "user-error"
    CANCELLED_BY_USER = "cancelled-by-user"
    COMPLETED = "completed"
