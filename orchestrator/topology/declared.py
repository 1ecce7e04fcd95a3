"""The fabric that the operator declares in files: read again when a file changes, and the last good one stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.topology.fabric import Fabric
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError, Problem


@dataclass(frozen=True, slots=True)
class Declared:
    fabric: Fabric
    problems: tuple[str, ...] = ()
    """One sentence each: what is missing or contradicts in the files, or why they are not in force as they are now."""


class DeclaredFabric:
    """Call it for what holds now. InvalidFabricError at first, when the files give no fabric; never later."""

    def __init__(self, files: Sequence[FabricFile]) -> None:
        self._files = files
        self._seen = self._stamps()
        self._good = self._newest = self._read()

    def __call__(self) -> Declared:
        if (stamps := self._stamps()) != self._seen:
            self._seen = stamps
            try:
                self._good = self._newest = self._read()
            except InvalidFabricError as error:
                wrong = f"{error}. The fabric read before stays in force."
                self._newest = Declared(self._good.fabric, (wrong, *self._good.problems))
        return self._newest

    def _read(self) -> Declared:
        combined = read_fabric(self._files)
        return Declared(combined.fabric, tuple(_sentence(problem) for problem in combined.problems))

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(file.path) for file in self._files)


def split_files(files: str) -> list[str]:
    """`[NODES=]FILE`, several with the separator of PATH between them."""
    return [part for part in files.split(os.pathsep) if part]


def absolute(file: str) -> str:
    """`[NODES=]FILE` with the absolute path of the file."""
    path = FabricFile.parse(file).path
    return f"{file.removesuffix(str(path))}{path.absolute()}"


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _sentence(problem: Problem) -> str:
    where = problem.file if problem.line is None else f"{problem.file}:{problem.line}"
    return f"{where}: {problem.message}"
