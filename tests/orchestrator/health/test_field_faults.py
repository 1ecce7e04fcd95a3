"""Faults that users of similar systems reported, as small scenarios, by the number of the row in the collection."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.health.verdict import Kind, Uneven, Watched
from tests.orchestrator.health.runs import (
    BWD,
    COLL,
    FWD,
    WALL,
    pipeline,
    seconds,
    slower,
    verdict_of,
    workers,
)


def test_row_80_backward_looks_equal_and_the_rank_that_waits_least_is_named() -> None:
    """200 ms put into the backward of rank 1: the all-reduce in it makes backward equal on all ranks."""
    layout = pipeline(1, 4)
    found = seconds(layout, 100)
    found[:, :, FWD] = 0.040
    found[:, :, BWD] = np.array([0.2930, 0.2922, 0.2930, 0.2931])
    found[:, :, COLL] = np.array([0.200, 0.000, 0.200, 0.200])
    found[:, :, WALL] = 0.333
    found *= 1 + 0.002 * np.random.default_rng(80).standard_normal(found.shape)
    (one,) = verdict_of(layout, found).stragglers
    assert one.rank == 1
    assert one.kind is Kind.CONSTANT
    assert one.cost_s == pytest.approx(100 * 0.2, rel=0.05)


def test_row_82_equal_means_three_verdicts() -> None:
    """5 % on average each: a constant 5 %, 40 % every eighth step on another rank each time, one step 30 times as
    long."""
    layout, steps = workers(8), 600
    healthy = seconds(layout, steps)

    constant = verdict_of(layout, slower(healthy, 3, 0.05, slice(None)))
    assert constant.healthy
    assert [(seen.rank, seen.kind) for seen in constant.watch] == [(3, Watched.TREND)]

    going_round = healthy
    for turn, step in enumerate(range(0, steps, 8)):
        going_round = slower(going_round, turn % 8, 0.4, [step])
    rotating = verdict_of(layout, going_round)
    assert rotating.healthy
    assert [uneven.kind for uneven in rotating.imbalance] == [Uneven.ROTATING]
    assert rotating.imbalance[0].cost_s == pytest.approx(75 * 0.4, rel=0.05)

    spiked = verdict_of(layout, slower(healthy, 3, 30.0, [300]))
    assert spiked.healthy
    assert [(seen.rank, seen.kind, seen.from_step) for seen in spiked.watch] == [(3, Watched.SPIKE, 301)]


def test_row_82_the_same_rank_every_eighth_step_is_a_straggler() -> None:
    layout = workers(8)
    found = slower(seconds(layout, 600), 5, 0.4, list(range(0, 600, 8)))
    assert [(one.rank, one.kind, one.period) for one in verdict_of(layout, found).stragglers] == [
        (5, Kind.PERIODIC, 8)
    ]


def test_row_84_a_worker_six_times_slower_than_its_cohort_is_named_within_ten_steps() -> None:
    layout = workers(8)
    (one,) = verdict_of(layout, slower(seconds(layout, 40), 2, 5.0, slice(20, None))).stragglers
    assert (one.rank, one.from_step) == (2, 21)
    assert one.factor == pytest.approx(6, rel=0.02)
    assert one.detected_step - one.from_step < 10


def test_row_88_a_second_stall_of_the_same_rank_is_a_second_event() -> None:
    layout = pipeline(1, 4)
    found = slower(seconds(layout, 120), 2, 2.0, slice(30, 40))
    found = slower(found, 2, 2.0, slice(60, 75))
    stalls = verdict_of(layout, found).stragglers
    assert [(one.rank, one.kind, one.from_step, one.to_step) for one in stalls] == [
        (2, Kind.TRANSIENT, 31, 40),
        (2, Kind.TRANSIENT, 61, 75),
    ]
