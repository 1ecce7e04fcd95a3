"""Where a model's first weights come from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.spec.sections import ModelSpec
from orchestrator.spec.violations import Violation


def directory(model: ModelSpec) -> Iterator[Violation]:
    given = model.weights
    if given is None:
        return
    path = PurePosixPath(given)
    if not path.is_absolute() or ".." in path.parts:
        message = (
            "must be the absolute path, without `..`, of a directory that every node sees and that holds a "
            f"config.json and safetensors, not {given}"
        )
        yield Violation("model.weights", given, message)
