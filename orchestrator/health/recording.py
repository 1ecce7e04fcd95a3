"""Recorded step times (CSV) as arrays. Two forms:

    step,rank,dp_rank,stage,fwd_s,bwd_s,recv_s,send_s,coll_s,gc_s,wall_s      phases of a synchronous job, in seconds
    step,rank,step_time                                                       ranks that do not wait, in any unit

Optional columns `node` and `role` name a rank's node and what it does; any other column is left aside. Lines may
come in any order. A step or a rank that is missing here and there is a gap, not an error. A step that a rank
reports twice is an error: a job that went back to a checkpoint is one file an attempt.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from orchestrator.health.layout import PHASES, RANKS_A_NODE, WHOLE, Floats, Layout
from orchestrator.health.straggler import FEWEST_STEPS, StragglerDetector
from orchestrator.health.verdict import Verdict

KEYS = ("step", "rank")
PLACES = ("dp_rank", "stage")
NAMES = ("node", "role")
CHUNK = 50_000
MOST_LINES = 10_000_000
"""About 1 GB of memory."""
MOST_PROBLEMS = 20
FEWEST_SHARED = 0.05
"""Of all ranks, those that an average step must have."""
LARGEST = 2**53


class RecordingError(ValueError):
    """A file that cannot be judged; `problems` has a sentence for each reason."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Recording:
    """Rows sorted by step, then rank."""

    layout: Layout
    steps: NDArray[np.int64]
    """Of each row."""
    places: NDArray[np.int64]
    """Of each row: index into `layout.ranks`."""
    seconds: Floats
    """(rows, columns of the layout)"""

    def by_step(self) -> Iterator[tuple[int, Floats]]:
        """Each step with its (ranks, columns) array; NaN for ranks that have no line."""
        numbers, starts = np.unique(self.steps, return_index=True)
        ends = [*starts[1:].tolist(), len(self.steps)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            found = np.full((len(self.layout), len(self.layout.columns)), np.nan)
            found[self.places[start:end]] = self.seconds[start:end]
            yield number, found


def judge(recording: Recording) -> Verdict:
    """The verdict on a whole recording."""
    detector = StragglerDetector(recording.layout)
    for step, seconds in recording.by_step():
        detector.observe(step, seconds)
    return detector.verdict()


def read_recording(path: Path, *, ranks_a_node: int = RANKS_A_NODE) -> Recording:
    """Raises RecordingError with everything that is wrong, OSError when the file cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return parse_recording(file, ranks_a_node=ranks_a_node)
    except UnicodeDecodeError:
        raise RecordingError(["the file is not UTF-8 text: a CSV file is needed"]) from None


def parse_recording(file: TextIO, *, ranks_a_node: int = RANKS_A_NODE) -> Recording:
    reader = csv.reader(file)
    try:
        header = [name.strip() for name in next(reader, [])]
        columns = _columns(header)
        numbers, names = _rows(reader, header, columns)
    except csv.Error as error:
        raise RecordingError([f"line {reader.line_num}: {error}"]) from None
    return _recording(columns, numbers, names, ranks_a_node)


def _columns(header: Sequence[str]) -> tuple[str, ...]:
    """The columns that are measured. Raises RecordingError when one is missing."""
    if not any(header):
        raise RecordingError(["the file is empty: a header line and measurements are needed"])
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise RecordingError([f"column {name} is there twice" for name in twice])
    forms = {WHOLE: (*KEYS, *WHOLE), PHASES: (*KEYS, *PLACES, *PHASES)}
    phased = any(name in header for name in PHASES) or "step_time" not in header
    columns = PHASES if phased else WHOLE
    missing = [name for name in forms[columns] if name not in header]
    if missing:
        noun = "column" if len(missing) == 1 else "columns"
        wanted = " or ".join(",".join(form) for form in (forms[PHASES], forms[WHOLE]))
        raise RecordingError([f"missing {noun} {', '.join(missing)}; needed are {wanted}"])
    return columns


def _rows(
    reader: Iterator[list[str]], header: Sequence[str], columns: Sequence[str]
) -> tuple[Floats, dict[str, dict[int, str]]]:
    """Numbers by row (step, rank, [dp_rank, stage,] measurements, line), and names by rank."""
    wanted = [*KEYS, *(PLACES if columns == PHASES else ()), *columns]
    index = [header.index(name) for name in wanted]
    named = {name: header.index(name) for name in NAMES if name in header}
    names: dict[str, dict[int, str]] = {name: {} for name in named}
    problems: list[str] = []
    blocks: list[Floats] = []
    lines = 0
    while chunk := list(islice(reader, CHUNK)):
        first = lines + 2
        lines += len(chunk)
        if lines > MOST_LINES:
            raise RecordingError([f"more than {MOST_LINES:,} lines: judge a part of the recording"])
        numbered = [(first + i, row) for i, row in enumerate(chunk) if any(cell.strip() for cell in row)]
        short = [(line, row) for line, row in numbered if len(row) != len(header)]
        problems += [
            f"line {line}: {len(row)} cells where the header has {len(header)}" for line, row in short
        ]
        whole = [(line, row) for line, row in numbered if len(row) == len(header)]
        if not whole:
            continue
        block = _numbers(whole, wanted, index, problems)
        if block is not None:
            blocks.append(block)
            for name, column in named.items():
                _names(whole, block[:, 1], name, column, names[name], problems)
    if problems:
        more = len(problems) - MOST_PROBLEMS
        raise RecordingError([*problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])
    if not blocks:
        raise RecordingError(["no measurements below the header"])
    return np.concatenate(blocks), names


def _numbers(
    rows: Sequence[tuple[int, list[str]]], wanted: Sequence[str], index: Sequence[int], problems: list[str]
) -> Floats | None:
    cells = [[row[i] for i in index] for _, row in rows]
    try:
        values = np.array(cells, dtype=np.float64)
    except ValueError:
        values = np.array([[_number(cell) for cell in row] for row in cells])
    wholes = 2 if len(wanted) == len(KEYS) + len(WHOLE) else 4
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(values) | (values < 0) | (values > LARGEST)
        bad[:, :wholes] |= values[:, :wholes] != np.floor(values[:, :wholes])
    for row, column in np.argwhere(bad).tolist():
        needed = "a whole number from 0" if column < wholes else "a finite number, 0 or more"
        problems.append(f"line {rows[row][0]}, {wanted[column]}: {cells[row][column]!r} is not {needed}")
    if bad.any():
        return None
    lines = np.array([line for line, _ in rows], dtype=np.float64)
    return np.column_stack([values, lines])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _names(
    rows: Sequence[tuple[int, list[str]]],
    ranks: Floats,
    name: str,
    column: int,
    known: dict[int, str],
    problems: list[str],
) -> None:
    for (line, row), rank in zip(rows, ranks.astype(np.int64).tolist(), strict=True):
        value = row[column].strip()
        if known.setdefault(rank, value) != value:
            problems.append(f"line {line}, {name}: rank {rank} is {value!r} here and {known[rank]!r} before")


def _recording(
    columns: tuple[str, ...], rows: Floats, names: dict[str, dict[int, str]], ranks_a_node: int
) -> Recording:
    rows = rows[np.lexsort((rows[:, -1], rows[:, 1], rows[:, 0]))]
    steps, ranks, lines = (rows[:, i].astype(np.int64) for i in (0, 1, -1))
    present, places = np.unique(ranks, return_inverse=True)
    problems = _twice(steps, ranks, lines)
    layout_of: dict[str, dict[int, int]] = {}
    for i, name in enumerate(PLACES if columns == PHASES else ()):
        layout_of[name], moved = _fixed(name, ranks, rows[:, 2 + i].astype(np.int64), lines)
        problems += moved
    problems += _too_little(len(present), len(np.unique(steps)), len(rows))
    if problems:
        raise RecordingError(problems[:MOST_PROBLEMS])
    layout = Layout.of(
        tuple(present.tolist()),
        stage=layout_of.get("stage"),
        replica=layout_of.get("dp_rank"),
        node=names.get("node"),
        role=names.get("role"),
        columns=columns,
        ranks_a_node=ranks_a_node,
    )
    return Recording(layout, steps, places.astype(np.int64), rows[:, -1 - len(columns) : -1].copy())


def _twice(steps: NDArray[np.int64], ranks: NDArray[np.int64], lines: NDArray[np.int64]) -> list[str]:
    again = np.flatnonzero((steps[1:] == steps[:-1]) & (ranks[1:] == ranks[:-1]))
    return [
        f"line {lines[i + 1]}: rank {ranks[i]} has step {steps[i]} already in line {lines[i]}; "
        "give a file for each attempt of the job"
        for i in again[:MOST_PROBLEMS].tolist()
    ]


def _fixed(
    name: str, ranks: NDArray[np.int64], values: NDArray[np.int64], lines: NDArray[np.int64]
) -> tuple[dict[int, int], list[str]]:
    """Value of each rank, which may not change."""
    present, first = np.unique(ranks, return_index=True)
    usual = values[first][np.searchsorted(present, ranks)]
    wrong = np.flatnonzero(values != usual)[:MOST_PROBLEMS]
    return dict(zip(present.tolist(), values[first].tolist(), strict=True)), [
        f"line {lines[i]}, {name}: rank {ranks[i]} is {values[i]} here and {usual[i]} elsewhere"
        for i in wrong.tolist()
    ]


def _too_little(ranks: int, steps: int, rows: int) -> list[str]:
    problems = []
    if ranks < 2:
        problems.append("only 1 rank: what is slow shows beside other ranks, at least 2")
    if steps < FEWEST_STEPS:
        noun = "step" if steps == 1 else "steps"
        problems.append(f"{steps} {noun}: at least {FEWEST_STEPS} are needed to tell what lasts")
    if ranks >= 2 and rows < FEWEST_SHARED * ranks * steps:
        problems.append(
            f"{ranks} ranks over {steps} steps share only {rows} lines: peers must be measured in the same steps"
        )
    return problems
