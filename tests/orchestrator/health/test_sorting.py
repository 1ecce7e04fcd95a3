"""Rows come back in order, and no more of them is in memory than needed."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from orchestrator.health import lines, sorting
from orchestrator.health.recording import judge, read_recording
from orchestrator.health.sorting import SortedRows


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short file is a long one."""
    monkeypatch.setattr(sorting, "PIECE", 16)
    monkeypatch.setattr(sorting, "IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(lines, "BLOCK", 500)


def test_blocks_in_any_order_come_back_step_by_step(small_blocks: None) -> None:
    """Step 7 has more rows than a piece, in every block."""
    random = np.random.default_rng(3)
    steps = np.where(random.random(900) < 0.3, 7, random.integers(0, 40, 900))
    rows = np.column_stack([steps, random.integers(0, 9, 900), random.random(900), np.arange(900)])
    found = SortedRows(4)
    for block in np.array_split(rows, 5):
        found.add(block)
    together = list(found.steps())
    assert len(found) == 900
    assert [step[0, 0] for step in together] == sorted(set(steps.tolist()))
    in_order = sorted(rows.tolist(), key=lambda row: (row[0], row[1], row[3]))
    assert np.concatenate(together).tolist() == in_order


def test_a_file_of_many_blocks_by_rank_is_judged_like_a_short_one(tmp_path: Path, small_blocks: None) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,rank,step_time\n" + "".join(_rank_by_rank(300)))
    (found,) = judge(read_recording(path)).stragglers
    assert (found.rank, found.from_step, found.to_step) == (3, 150, 299)


def test_memory_does_not_grow_with_the_file(tmp_path: Path, small_blocks: None) -> None:
    peaks = []
    for steps in (500, 500, 2_000):  # the first one warms up
        path = tmp_path / f"{steps}.csv"
        path.write_text("step,rank,step_time\n" + "".join(_rank_by_rank(steps)))
        tracemalloc.start()
        recording = read_recording(path)
        assert sum(len(seconds) for _, seconds in recording.by_step()) == 8 * steps
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    rows_bytes = 8 * 2_000 * 4 * 8
    assert peaks[2] - peaks[1] < 0.25 * rows_bytes


def _rank_by_rank(steps: int) -> list[str]:
    """Eight ranks, one after the other; rank 3 is half as slow again from the middle on."""
    slow = steps // 2
    return [
        f"{step},{rank},{1.5 if rank == 3 and step >= slow else 1.0}\n"
        for rank in range(8)
        for step in range(steps)
    ]
