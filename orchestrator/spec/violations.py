"""A violation: one thing wrong with what a user sent, with the place, the value and what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Violation:
    field: str
    """Path of the field in the document, dotted: `parallelism.tp`."""
    value: Any
    """What was found there; None when the field is missing."""
    message: str
    """What is wrong and what would be right, one sentence."""


class InvalidSpecError(ValueError):
    """A job file that cannot be taken; carries every violation, not the first."""

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("; ".join(f"{v.field}: {v.message}" for v in violations))
