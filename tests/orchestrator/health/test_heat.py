"""The heat map: columns of at least COLUMN_S, cells as they were measured, rows that show the slow one of several."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.health.heat import COLUMN_S, COLUMNS, ROWS, HeatRecorder, unpacked


def test_a_long_step_is_a_column_of_its_own() -> None:
    heat = HeatRecorder(2, 3)
    compute, wait = np.array([1.0, 1.5, np.nan]), np.array([0.5, 0.0, np.nan])
    heat.add(7, compute, wait, step_s=1.5)
    heat.add(8, 2 * compute, wait, step_s=3.0)
    (block,) = heat.blocks()
    assert (block.attempt, block.number, block.ranks, block.ranks_a_row) == (2, 0, 3, 1)
    assert block.steps == ((7, 7, 1), (8, 8, 1))
    np.testing.assert_allclose(unpacked(block, "compute"), [[1, 2], [1.5, 3], [np.nan, np.nan]], rtol=1e-4)
    np.testing.assert_allclose(unpacked(block, "wait"), [[0.5, 0.5], [0, 0], [np.nan, np.nan]], rtol=1e-4)


def test_short_steps_share_a_column_that_says_mean_and_longest() -> None:
    heat = HeatRecorder(1, 2)
    for step in range(1, 6):
        one = 0.3 if step == 3 else 0.1
        heat.add(step, np.array([0.1, one]), np.array([0.2, 0.0]), step_s=COLUMN_S / 5)
    (block,) = heat.blocks()
    assert block.steps == ((1, 5, 5),)
    np.testing.assert_allclose(unpacked(block, "compute"), [[0.1], [0.14]], rtol=1e-3)
    np.testing.assert_allclose(unpacked(block, "slowest"), [[0.1], [0.3]], rtol=1e-3)


def test_a_whole_block_is_told_once_more_beside_the_next() -> None:
    heat = HeatRecorder(1, 1)
    for step in range(1, COLUMNS + 2):
        heat.add(step, np.array([1.0]), np.array([0.0]), step_s=1.0)
    whole, newest = heat.blocks()
    assert (whole.number, whole.is_whole, newest.number, len(newest.steps)) == (0, True, 1, 1)
    assert newest.steps == ((COLUMNS + 1, COLUMNS + 1, 1),)


def test_many_ranks_share_rows_that_show_the_slow_one() -> None:
    ranks = 2 * ROWS + 1
    compute, wait = np.ones(ranks), np.ones(ranks)
    compute[4], wait[4] = 2.0, 0.0
    heat = HeatRecorder(1, ranks)
    heat.add(1, compute, wait, step_s=1.0)
    (block,) = heat.blocks()
    assert block.ranks_a_row == 3
    cells = unpacked(block, "compute")
    assert cells.shape == (-(-ranks // 3), 1)
    assert cells.shape[0] <= ROWS
    assert np.argmax(cells) == np.argmin(unpacked(block, "wait")) == 1
    assert cells[1, 0] == pytest.approx(2.0, rel=1e-4)
