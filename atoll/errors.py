"""What can go wrong between a client and the API, as exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class AtollError(Exception):
    """Base of every error this package raises on purpose; `str()` is a sentence for people."""


class ServerUnreachableError(AtollError):
    """No usable answer within the retry budget: no connection, a time-out, or a server that says it is not ready."""


class NotAtollError(AtollError):
    """Something answered, but not the Atoll API."""


class AmbiguousReferenceError(AtollError):
    """A prefix or name that means several jobs."""


class JobNotFoundError(AtollError):
    """No job has this id, id prefix or name."""


class CheckpointError(AtollError):
    """A job that has no checkpoint yet, no good one, or a model that no file format takes."""


class StorageUnreachableError(AtollError):
    """A job's shared storage that this machine does not see."""


@dataclass(frozen=True, slots=True)
class FieldViolation:
    field: str
    value: Any
    message: str


class ProblemError(AtollError):
    """The API refused a request (RFC 9457)."""

    def __init__(
        self, *, status: int, title: str, detail: str, violations: tuple[FieldViolation, ...] = ()
    ) -> None:
        self.status = status
        self.title = title
        self.detail = detail
        self.violations = violations
        super().__init__(detail or title)
