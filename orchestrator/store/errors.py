"""What the store refuses, each as a type that the API maps to a status."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

DISK_FULL = "53100"
"""PostgreSQL's code (Appendix A of its manual)."""


def is_full(error: BaseException | None) -> bool:
    """Whether the database refused a write for want of room on its disk.

    SQLite ends the transaction then, and going back to a savepoint of it is a second error, with the first as context.
    """
    while error is not None:
        cause = error.orig if isinstance(error, DBAPIError) else None
        code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
        if code == sqlite3.SQLITE_FULL or state == DISK_FULL:
            return True
        error = error.__context__
    return False


class StoreError(Exception):
    """Base of the errors below."""


class JobNotFoundError(StoreError):
    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"there is no job {job_id}")


class NodeNotFoundError(StoreError):
    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"there is no node {name}")


class JobAlreadyEndedError(StoreError):
    """Cancelling what has ended already."""

    def __init__(self, job_id: str, state: str) -> None:
        self.job_id = job_id
        self.state = state
        super().__init__(f"job {job_id} has already ended as {state}; it cannot be cancelled")


class IdempotencyConflictError(StoreError):
    """An Idempotency-Key that was used with another job file."""

    def __init__(self, key: str, job_id: str) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"Idempotency-Key {key!r} was used for job {job_id} with another job file; "
            "use a new key for a new job"
        )


class InvalidCursorError(StoreError):
    def __init__(self, cursor: str) -> None:
        self.cursor = cursor
        super().__init__(
            f"cursor {cursor[:80]!r} is none that this list gave; use `next_cursor` of the page before"
        )


class LeadershipLostError(StoreError):
    """Another controller holds the lease: whoever gets this must write nothing and act on nothing."""

    def __init__(self, token: int, current: int | None) -> None:
        self.token = token
        self.current = current
        super().__init__(f"leadership lost: this controller's token is {token}, the lease's is {current}")
