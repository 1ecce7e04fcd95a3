"""Lines of a CSV file as checked numbers, a block at a time; every wrong cell is named by its line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TextIO

import numpy as np

from orchestrator.health.layout import PHASES, WHOLE, Floats

KEYS = ("step", "rank")
PLACES = ("dp_rank", "stage")
NAMES = ("node", "role")
BLOCK = 100_000
"""Lines in memory at a time."""
LONGEST = 65_536
"""Characters of a line."""
MOST_PROBLEMS = 20
LARGEST = 2**53


class RecordingError(ValueError):
    """A file that cannot be judged; `problems` has a sentence for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


class Lines:
    """The columns that are needed of a file, in blocks. Raises RecordingError when the header lacks one."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._header = _header(file)
        self.columns = _measured(self._header)
        self.fixed = PLACES if self.columns == PHASES else ()
        """Numbers that a rank keeps."""
        self.wanted = (*KEYS, *self.fixed, *self.columns)
        self.named = tuple(name for name in NAMES if name in self._header)
        self._read = 1

    def blocks(self) -> Iterator[tuple[Floats, dict[str, list[str]]]]:
        """Rows of `wanted` and the line's number, with the names of each row by column of `named`. Raises
        RecordingError after a block in which the wrong cells become too many, or at the end."""
        problems: list[str] = []
        following = iter(partial(self._file.readline, LONGEST), "")
        while lines := list(islice(following, BLOCK)):
            first = self._read + 1
            self._read += len(lines)
            found = self._plain(lines, first)
            if found is None:
                found = self._cell_by_cell(lines, first, problems)
            if len(problems) >= MOST_PROBLEMS:
                break
            if not problems:
                yield found
        if problems:
            more = len(problems) - MOST_PROBLEMS
            up_to = f" up to line {self._read}" if lines else ""
            raise RecordingError(
                [*problems[:MOST_PROBLEMS], *([f"and {more} more{up_to}"] if more > 0 else [])]
            )

    def _plain(self, lines: list[str], first: int) -> tuple[Floats, dict[str, list[str]]] | None:
        """The quick way; None when a line is not as it should be."""
        commas = len(self._header) - 1
        if any(line.count(",") != commas or '"' in line or len(line) >= LONGEST for line in lines):
            return None
        try:
            index = [self._header.index(name) for name in self.wanted]
            values = np.loadtxt(lines, delimiter=",", usecols=index, comments=None, ndmin=2)
        except ValueError:
            return None
        if len(values) != len(lines) or self._wrong(values).any():
            return None
        cells = [line.rstrip("\r\n").split(",") for line in lines] if self.named else []
        numbers = np.arange(first, first + len(lines), dtype=np.float64)
        return np.column_stack([values, numbers]), self._names(cells)

    def _cell_by_cell(
        self, lines: list[str], first: int, problems: list[str]
    ) -> tuple[Floats, dict[str, list[str]]]:
        """The slow way: leaves out empty lines and says what is wrong with others."""
        rows = []
        for number, line in enumerate(lines, first):
            try:
                cells = next(csv.reader([line]), [])
            except csv.Error as error:
                problems.append(f"line {number}: {error}")
                continue
            if len(line) >= LONGEST:
                problems.append(f"line {number}: longer than {LONGEST} characters")
            elif any(cell.strip() for cell in cells):
                if len(cells) == len(self._header):
                    rows.append((number, cells))
                else:
                    problems.append(
                        f"line {number}: {len(cells)} cells where the header has {len(self._header)}"
                    )
        index = [self._header.index(name) for name in self.wanted]
        texts = [[cells[i] for i in index] for _, cells in rows]
        values = np.array([[_number(text) for text in row] for row in texts]).reshape(-1, len(index))
        whole = len(KEYS) + len(self.fixed)
        for row, column in np.argwhere(self._wrong(values)).tolist():
            needed = "a whole number from 0" if column < whole else "a finite number, 0 or more"
            problems.append(
                f"line {rows[row][0]}, {self.wanted[column]}: {texts[row][column]!r} is not {needed}"
            )
        numbers = np.array([number for number, _ in rows], dtype=np.float64)
        return np.column_stack([values, numbers]), self._names([cells for _, cells in rows])

    def _wrong(self, values: Floats) -> np.typing.NDArray[np.bool_]:
        whole = len(KEYS) + len(self.fixed)
        with np.errstate(invalid="ignore"):
            wrong = ~np.isfinite(values) | (values < 0) | (values > LARGEST)
            wrong[:, :whole] |= values[:, :whole] != np.floor(values[:, :whole])
        return wrong

    def _names(self, cells: Sequence[Sequence[str]]) -> dict[str, list[str]]:
        places = {name: self._header.index(name) for name in self.named}
        return {name: [row[place].strip() for row in cells] for name, place in places.items()}


def _header(file: TextIO) -> list[str]:
    line = file.readline(LONGEST)
    if len(line) >= LONGEST or any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in line):
        raise RecordingError(["line 1: no header of a CSV file in UTF-8"])
    return [name.strip() for name in next(csv.reader([line]), [])]


def _measured(header: Sequence[str]) -> tuple[str, ...]:
    """The columns that are measured. Raises RecordingError when one is missing."""
    if not any(header):
        raise RecordingError(["line 1: the file is empty: a header line and measurements are needed"])
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise RecordingError([f"line 1: column {name} is there twice" for name in twice])
    forms = {WHOLE: (*KEYS, *WHOLE), PHASES: (*KEYS, *PLACES, *PHASES)}
    phased = any(name in header for name in PHASES) or "step_time" not in header
    columns = PHASES if phased else WHOLE
    missing = [name for name in forms[columns] if name not in header]
    if missing:
        noun = "column" if len(missing) == 1 else "columns"
        wanted = " or ".join(",".join(form) for form in (forms[PHASES], forms[WHOLE]))
        raise RecordingError([f"line 1: missing {noun} {', '.join(missing)}; needed are {wanted}"])
    return columns


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
