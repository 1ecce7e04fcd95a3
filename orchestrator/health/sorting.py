"""Rows in the order of their steps, of which only a part is in memory at a time.

Blocks are sorted as they come and written to a temporary file; reading merges them (external merge sort, Knuth, The
Art of Computer Programming 3, 5.4). A file that is sorted already costs no more than one that is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.health.layout import Floats

PIECE = 4096
"""Rows of a block that are in memory while blocks are merged."""
IN_MEMORY_BYTES = 64 * 2**20
"""What is less never reaches the disk."""


@dataclass(slots=True)
class _Block:
    """A sorted block in the file, and the part of it that is read but not yet given out."""

    start: int
    end: int
    read: Floats


class SortedRows:
    """Rows of numbers: step, rank, anything, line. Sorted by step, then rank, then line."""

    def __init__(self, width: int) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # lives as long as the rows
        self._width = width
        self._ends: list[int] = []

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def add(self, rows: Floats) -> None:
        """rows: (rows, width)"""
        order = np.lexsort((rows[:, -1], rows[:, 1], rows[:, 0]))
        self._file.seek(0, 2)
        self._file.write(rows[order].tobytes())
        self._ends.append(len(self) + len(rows))

    def steps(self) -> Iterator[Floats]:
        """The rows of each step, (rows, width)."""
        for rows in self._merged():
            cuts = np.flatnonzero(np.diff(rows[:, 0])) + 1
            yield from np.split(rows, cuts)

    def _merged(self) -> Iterator[Floats]:
        """All rows in order; no step is split."""
        nothing = np.empty((0, self._width))
        starts = [0, *self._ends[:-1]]
        blocks = [_Block(start, end, nothing) for start, end in zip(starts, self._ends, strict=True)]
        while blocks:
            for block in blocks:
                if not len(block.read):
                    self._read_on(block)
            unfinished = [block for block in blocks if block.start < block.end]
            limit = min((block.read[-1, 0] for block in unfinished), default=np.inf)
            taken = [_take(block, limit) for block in blocks]
            rows = np.concatenate(taken)
            if len(rows):
                yield rows[np.lexsort((rows[:, -1], rows[:, 1], rows[:, 0]))]
            else:  # the step at the limit goes on in what is not read yet
                for block in unfinished:
                    if block.read[-1, 0] == limit:
                        self._read_on(block)
            blocks = [block for block in blocks if len(block.read) or block.start < block.end]

    def _read_on(self, block: _Block) -> None:
        count = min(PIECE, block.end - block.start)
        row_bytes = self._width * np.dtype(np.float64).itemsize
        self._file.seek(block.start * row_bytes)
        piece = np.frombuffer(self._file.read(count * row_bytes)).reshape(count, self._width)
        block.read = np.concatenate([block.read, piece])
        block.start += count


def _take(block: _Block, limit: float) -> Floats:
    """What is before the limit."""
    cut = int(np.searchsorted(block.read[:, 0], limit))
    taken, block.read = block.read[:cut], block.read[cut:]
    return taken
