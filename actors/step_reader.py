"""Reads the rings of an agent's ranks: what they measured since the last look, as one array for the supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from actors import step_ring
from orchestrator.health.layout import Floats
from orchestrator.health.phases import ROW

MOST = 4
"""Steps of a rank that are passed on of one look. Of more, every 2nd, 4th ... by its number: then agents that look at
other times, or at more steps, still have steps in common."""


class StepReader:
    """Of one attempt."""

    def __init__(self) -> None:
        self._read: dict[int, int] = {}
        """Entries that were read, by rank."""

    def look(self, pulses: Mapping[int, Path]) -> Floats:
        """What is new since the last look, (rows, columns of `health.phases.ROW`), by rank and in the order of its
        steps. `pulses`: the pulse files of the ranks."""
        parts = [self._of(rank, step_ring.ring_path(path)) for rank, path in pulses.items()]
        return np.concatenate([np.empty((0, len(ROW))), *parts])

    def _of(self, rank: int, path: Path) -> Floats:
        self._read[rank], entries = step_ring.read(path, after=self._read.get(rank, 0))
        stride = 1
        while len(kept := entries[entries[:, 0] % stride == 0]) > MOST:
            stride *= 2
        return np.column_stack([np.full(len(kept), float(rank)), kept])
