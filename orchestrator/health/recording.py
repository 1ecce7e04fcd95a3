"""Recorded step times (CSV). Two forms:

    step,rank,dp_rank,stage,fwd_s,bwd_s,recv_s,send_s,coll_s,gc_s,wall_s      phases of a synchronous job, in seconds
    step,rank,step_time                                                       ranks that do not wait, in any unit

Optional columns `node` and `role` name a rank's node and what it does; any other column is left aside. Lines may
come in any order. A step or a rank that is missing here and there is a gap, not an error. A step that a rank
reports twice is an error: a job that went back to a checkpoint is one file an attempt. Memory does not grow with the
file (see `sorting`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from orchestrator.health.layout import RANKS_A_NODE, Floats, Layout
from orchestrator.health.lines import MOST_PROBLEMS, Lines, RecordingError
from orchestrator.health.sorting import SortedRows
from orchestrator.health.straggler import FEWEST_STEPS, StragglerDetector
from orchestrator.health.verdict import Verdict

FEWEST_SHARED = 0.05
"""Of all ranks, those that an average step must have."""
MOST_RANKS = 100_000


@dataclass(frozen=True, slots=True)
class Recording:
    layout: Layout
    rows: SortedRows
    """step, rank, [dp_rank, stage,] columns of the layout, line"""

    def by_step(self) -> Iterator[tuple[int, Floats]]:
        """Each step with its (ranks, columns) array; NaN for ranks that have no line."""
        ranks = np.array(self.layout.ranks)
        columns = slice(-1 - len(self.layout.columns), -1)
        for rows in self.rows.steps():
            found = np.full((len(ranks), len(self.layout.columns)), np.nan)
            found[np.searchsorted(ranks, rows[:, 1])] = rows[:, columns]
            yield int(rows[0, 0]), found


def judge(recording: Recording) -> Verdict:
    """The verdict on a whole recording."""
    detector = StragglerDetector(recording.layout)
    for step, seconds in recording.by_step():
        detector.observe(step, seconds)
    return detector.verdict()


def read_recording(path: Path, *, ranks_a_node: int = RANKS_A_NODE) -> Recording:
    """Raises RecordingError with everything that is wrong, OSError when the file cannot be read."""
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        return parse_recording(file, ranks_a_node=ranks_a_node)


def parse_recording(file: TextIO, *, ranks_a_node: int = RANKS_A_NODE) -> Recording:
    lines = Lines(file)
    rows = SortedRows(len(lines.wanted) + 1)
    ranks: set[int] = set()
    kept = {name: _Kept[int](name) for name in lines.fixed}
    names = {name: _Kept[str](name) for name in lines.named}
    problems: list[str] = []
    for numbers, named in lines.blocks():
        rows.add(numbers)
        of, line = numbers[:, 1].astype(np.int64), numbers[:, -1].astype(np.int64)
        ranks.update(np.unique(of).tolist())
        if len(ranks) > MOST_RANKS:
            raise RecordingError([f"line {line[-1]}, rank: more than {MOST_RANKS:,} ranks"])
        for place, number in enumerate(kept.values(), 2):
            problems += number.see(of, line, numbers[:, place].astype(np.int64))
        for column, name in names.items():
            problems += name.see(of, line, np.array(named[column], dtype=object))
    if not len(rows):
        raise RecordingError(["line 2: no measurements below the header"])
    problems += _twice_or_too_little(rows, len(ranks))
    if problems:
        raise RecordingError(problems[:MOST_PROBLEMS])
    layout = Layout.of(
        tuple(sorted(ranks)),
        stage=kept["stage"].values if kept else None,
        replica=kept["dp_rank"].values if kept else None,
        node=names["node"].values if "node" in names else None,
        role=names["role"].values if "role" in names else None,
        columns=lines.columns,
        ranks_a_node=ranks_a_node,
    )
    return Recording(layout, rows)


Value = TypeVar("Value", int, str)


class _Kept(Generic[Value]):
    """What a rank has in a column that may not change."""

    def __init__(self, column: str) -> None:
        self._column = column
        self.values: dict[int, Value] = {}

    def see(self, ranks: NDArray[np.int64], lines: NDArray[np.int64], values: NDArray[Any]) -> list[str]:
        """What is wrong with some rows; all arrays have an entry a row."""
        present, first, of = np.unique(ranks, return_index=True, return_inverse=True)
        pairs = zip(present.tolist(), values[first].tolist(), strict=True)
        usual = np.array([self.values.setdefault(rank, value) for rank, value in pairs], dtype=values.dtype)[
            of
        ]
        wrong = np.flatnonzero(values != usual)[:MOST_PROBLEMS]
        return [
            f"line {lines[i]}, {self._column}: rank {ranks[i]} is {found!r} here and {before!r} before"
            for i, found, before in zip(
                wrong.tolist(), values[wrong].tolist(), usual[wrong].tolist(), strict=True
            )
        ]


def _twice_or_too_little(rows: SortedRows, ranks: int) -> list[str]:
    problems: list[str] = []
    steps = 0
    for of_step in rows.steps():
        steps += 1
        rank, line = of_step[:, 1].astype(np.int64), of_step[:, -1].astype(np.int64)
        problems += [
            f"line {line[i + 1]}, step: rank {rank[i]} has step {int(of_step[i, 0])} already in line {line[i]}; "
            "give a file for each attempt of the job"
            for i in np.flatnonzero(rank[1:] == rank[:-1])[:MOST_PROBLEMS].tolist()
            if len(problems) < MOST_PROBLEMS
        ]
    if ranks < 2:
        problems.append("column rank: only 1 rank: what is slow shows beside other ranks, at least 2")
    if steps < FEWEST_STEPS:
        noun = "step" if steps == 1 else "steps"
        problems.append(f"column step: {steps} {noun}: at least {FEWEST_STEPS} are needed to tell what lasts")
    if ranks >= 2 and len(rows) < FEWEST_SHARED * ranks * steps:
        problems.append(
            f"{ranks} ranks over {steps} steps share only {len(rows)} lines: peers must be measured in the same steps"
        )
    return problems
