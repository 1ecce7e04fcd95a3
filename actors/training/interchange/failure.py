"""What cannot be read or written, with every reason at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

SHOWN = 40
"""Reasons a message spells out: a wrong directory may lack thousands of tensors."""


class InterchangeError(ValueError):
    """A directory or a model that does not fit the other side; `reasons` has them all."""

    def __init__(self, sentence: str, reasons: Sequence[str]) -> None:
        self.sentence = sentence
        self.reasons = tuple(reasons)
        hidden = len(reasons) - SHOWN
        more = f"; and {hidden} more" if hidden > 0 else ""
        super().__init__(f"{sentence}: " + "; ".join(reasons[:SHOWN]) + more)


class DirectoryUnreachableError(InterchangeError):
    """A directory or file that is not there, or that this process may not read."""

    def __init__(self, what: str, path: Path, error: OSError | None = None) -> None:
        reason = "is not there" if error is None else (error.strerror or str(error))
        super().__init__(f"{what} {path} cannot be read on this machine", [reason])
