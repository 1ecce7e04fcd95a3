"""Where checkpoints lie."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.spec.sections import CheckpointSpec
from orchestrator.spec.violations import Violation


def directory(checkpoint: CheckpointSpec) -> Iterator[Violation]:
    given = checkpoint.directory
    if given is None:
        return
    path = PurePosixPath(given)
    if not path.is_absolute():
        message = f"must be an absolute path on storage that every node sees, not {given}"
        yield Violation("checkpoint.directory", given, message)
    elif ".." in path.parts or path == PurePosixPath("/"):
        message = f"must name a directory below the root, without `..`, not {given}"
        yield Violation("checkpoint.directory", given, message)
