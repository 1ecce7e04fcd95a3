"""Rank by step, small enough to store and draw: computing and waiting of every rank, a block of columns at a time.

A column is a step, or several where steps are short; a row a rank, or several where there are more than ROWS. A cell
says the mean over its steps, `slowest` the longest of them. Of several ranks it says the one that computes longest and
the one that waits least: these are what to look for.
"""

from __future__ import annotations

import base64
import warnings
from dataclasses import dataclass

import numpy as np

from orchestrator.health.layout import Floats

PLANES = ("compute", "slowest", "wait")
ROWS = 1_024
COLUMNS = 32
"""Of a whole block."""
COLUMN_S = 0.25
"""A column covers so much time of training, or one step."""
UNKNOWN = 65_535
"""Stands for a cell that nobody measured."""


@dataclass(frozen=True, slots=True)
class HeatBlock:
    attempt: int
    number: int
    """0, 1, 2 ... within the attempt. The newest one is told again as it grows."""
    ranks: int
    ranks_a_row: int
    steps: tuple[tuple[int, int, int], ...]
    """First, last and number of measured steps of each column."""
    scale_s: tuple[float, ...]
    """Seconds of one unit, by plane."""
    planes: tuple[str, ...]
    """By plane: base64 of little-endian uint16 (rows, columns); UNKNOWN where nothing was measured."""

    @property
    def is_whole(self) -> bool:
        return len(self.steps) == COLUMNS


class HeatRecorder:
    """Of one attempt. Holds the block in the making and the one before."""

    def __init__(self, attempt: int, ranks: int) -> None:
        self._attempt = attempt
        self._ranks = ranks
        self._ranks_a_row = -(-ranks // ROWS)
        self._number = 0
        self._columns: list[Floats] = []
        """(planes, rows) each."""
        self._steps: list[tuple[int, int, int]] = []
        self._cells: list[Floats] = []
        """(2, ranks) of the steps of the column in the making."""
        self._first = self._last = 0
        self._seconds = 0.0
        self._whole: HeatBlock | None = None

    def add(self, step: int, compute: Floats, wait: Floats, *, step_s: float) -> None:
        """A step of `step_s` seconds. compute, wait: seconds by rank, NaN where unknown."""
        if not self._cells:
            self._first, self._seconds = step, 0.0
        self._cells.append(np.stack([compute, wait]))
        self._last = step
        self._seconds += step_s
        if self._seconds >= COLUMN_S:
            self._close_column()

    def blocks(self) -> list[HeatBlock]:
        """The block before, when there is one, and the newest, when it has a column."""
        newest = [self._block()] if self._columns else []
        return [*([self._whole] if self._whole else []), *newest]

    def _close_column(self) -> None:
        cells, self._cells = np.stack(self._cells), []
        compute, wait = cells[:, 0], cells[:, 1]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a rank without a measurement stays NaN
            planes = [np.nanmean(compute, axis=0), np.nanmax(compute, axis=0), np.nanmean(wait, axis=0)]
            rows = [self._in_rows(plane) for plane in planes]
            self._columns.append(
                np.stack([np.nanmax(rows[0], axis=1), np.nanmax(rows[1], axis=1), np.nanmin(rows[2], axis=1)])
            )
        self._steps.append((self._first, self._last, len(cells)))
        if len(self._columns) == COLUMNS:
            self._whole = self._block()
            self._number += 1
            self._columns, self._steps = [], []

    def _in_rows(self, values: Floats) -> Floats:
        padding = -len(values) % self._ranks_a_row
        return np.append(values, np.full(padding, np.nan)).reshape(-1, self._ranks_a_row)

    def _block(self) -> HeatBlock:
        planes = np.stack(self._columns, axis=-1)  # (planes, rows, columns)
        packed = [_packed(plane) for plane in planes]
        return HeatBlock(
            attempt=self._attempt,
            number=self._number,
            ranks=self._ranks,
            ranks_a_row=self._ranks_a_row,
            steps=tuple(self._steps),
            scale_s=tuple(scale for scale, _ in packed),
            planes=tuple(text for _, text in packed),
        )


def _packed(plane: Floats) -> tuple[float, str]:
    """(seconds of a unit, cells in base64)."""
    known = plane[np.isfinite(plane)]
    largest = float(known.max()) if len(known) else 0.0
    scale = max(largest, 1e-9) / (UNKNOWN - 1)
    cells = np.where(np.isfinite(plane), np.round(plane / scale), UNKNOWN)
    return scale, base64.b64encode(cells.clip(0, UNKNOWN).astype("<u2").tobytes()).decode()


def unpacked(block: HeatBlock, plane: str) -> Floats:
    """Seconds, (rows, columns); NaN where nothing was measured."""
    at = PLANES.index(plane)
    cells = np.frombuffer(base64.b64decode(block.planes[at]), dtype="<u2").astype(np.float64)
    cells[cells == UNKNOWN] = np.nan
    return (cells * block.scale_s[at]).reshape(-1, len(block.steps))
