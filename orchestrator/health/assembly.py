"""Steps put together from what the agents tell: rows of many ranks, in any order between ranks, one array a step."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from orchestrator.health.layout import Floats
from orchestrator.health.phases import StepPhases

PENDING = 256
"""Steps that wait for ranks; the oldest gives way."""
FEWEST = 0.5
"""Of all ranks: a step that fewer have measured is left out."""


class RewoundError(Exception):
    """A rank has gone back to a step it had measured before: what was learned is of another course."""


class StepAssembly:
    """Of one attempt."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._newest = np.full(ranks, -1, dtype=np.int64)
        """Step that each rank told last."""
        self._pending: dict[int, Floats] = {}
        self._given = -1

    def take(self, rows: Floats) -> Iterator[tuple[int, Floats]]:
        """Steps that are complete with `rows`, (rows, columns of ROW), in rising order, as (ranks, phases). NaN for a
        rank that has measured a later step but not this one. Raises RewoundError; this object is of no use then."""
        for row in rows:
            rank, step = int(row[0]), int(row[1])
            if not 0 <= rank < self._ranks:
                continue
            if step <= self._newest[rank]:
                raise RewoundError(f"rank {rank} tells step {step} after step {self._newest[rank]}")
            self._newest[rank] = step
            if step <= self._given:
                continue  # it gave way before this rank told it
            if step not in self._pending:
                self._pending[step] = np.full((self._ranks, len(StepPhases._fields)), np.nan)
            self._pending[step][rank] = row[2:]
        told = int(self._newest.min())
        ready = sorted(step for step in self._pending if step <= told)
        ready += sorted(self._pending.keys() - set(ready))[
            : max(0, len(self._pending) - len(ready) - PENDING)
        ]
        for step in ready:
            found = self._pending.pop(step)
            self._given = step
            if np.count_nonzero(~np.isnan(found[:, 0])) >= FEWEST * self._ranks:
                yield step, found
