"""Degrees that must divide sizes."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.spec.violations import Violation


def must_divide(field: str, degree: int, other: str, size: int) -> Iterator[Violation]:
    """`degree`, found at `field`, divides `size`, which `other` names."""
    if size % degree:
        yield Violation(field, degree, f"must divide {other} ({size}), {degree} does not")
