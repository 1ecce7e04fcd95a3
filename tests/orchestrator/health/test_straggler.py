"""Each kind of fault on its own over small noise, and what must not be called one."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.health.layout import WHOLE, Layout
from orchestrator.health.straggler import StragglerDetector
from orchestrator.health.verdict import Kind, Uneven, Watched
from tests.orchestrator.health.runs import (
    COLL,
    GC,
    RECV,
    SEND,
    WALL,
    pipeline,
    seconds,
    slower,
    verdict_of,
    workers,
)

COMPUTE_S = 0.9
"""Forward and backward of a step in `seconds`."""


@pytest.mark.parametrize("layout", [pipeline(1, 4), pipeline(4, 4), pipeline(2, 2), workers(8)])
def test_a_healthy_run_has_no_finding_at_all(layout: Layout) -> None:
    verdict = verdict_of(layout, seconds(layout, 200))
    assert (verdict.healthy, verdict.stragglers, verdict.imbalance, verdict.watch) == (True, (), (), ())


@pytest.mark.parametrize("layout", [pipeline(1, 4), pipeline(4, 4), pipeline(2, 2)])
def test_ten_percent_all_along_is_found_with_its_factor_and_cost(layout: Layout) -> None:
    verdict = verdict_of(layout, slower(seconds(layout, 100), 1, 0.09, slice(None)))
    (found,) = verdict.stragglers
    assert (found.rank, found.kind, found.from_step, found.to_step) == (1, Kind.CONSTANT, 1, 100)
    assert found.factor == pytest.approx(1.10, abs=0.01)
    assert found.cost_s == pytest.approx(100 * 0.09, rel=0.05)
    assert found.confidence > 0.8
    assert not verdict.healthy


def test_a_rank_that_becomes_slow_and_recovers_has_both_steps() -> None:
    layout = pipeline(2, 4)
    (found,) = verdict_of(layout, slower(seconds(layout, 120), 5, 0.25 * COMPUTE_S, slice(40, 70))).stragglers
    assert (found.rank, found.kind, found.from_step, found.to_step) == (5, Kind.TRANSIENT, 41, 70)
    assert found.detected_step - found.from_step <= 20


def test_a_rank_that_became_slow_and_still_is() -> None:
    layout = pipeline(1, 8)
    (found,) = verdict_of(
        layout, slower(seconds(layout, 120), 7, 0.25 * COMPUTE_S, slice(60, None))
    ).stragglers
    assert (found.rank, found.kind, found.from_step, found.to_step) == (7, Kind.ONSET, 61, 120)


def test_every_eighth_step_forty_percent_slower_is_periodic() -> None:
    layout = pipeline(1, 4)
    every = list(range(3, 120, 8))
    (found,) = verdict_of(layout, slower(seconds(layout, 120), 2, 0.4 * COMPUTE_S, every)).stragglers
    assert (found.rank, found.kind, found.period) == (2, Kind.PERIODIC, 8)
    assert found.factor == pytest.approx(1.4, abs=0.02)
    assert found.cost_s == pytest.approx(len(every) * 0.4 * COMPUTE_S, rel=0.05)


def test_every_other_step_is_periodic_too() -> None:
    layout = pipeline(1, 4)
    (found,) = verdict_of(
        layout, slower(seconds(layout, 120), 2, 0.4 * COMPUTE_S, list(range(0, 120, 2)))
    ).stragglers
    assert (found.rank, found.kind, found.period) == (2, Kind.PERIODIC, 2)


def test_a_slow_node_is_named_on_all_its_ranks() -> None:
    layout = pipeline(2, 4, node={r: "slow" if r in (1, 5) else f"n{r}" for r in range(8)})
    found = seconds(layout, 100)
    for rank in (1, 5):
        found = slower(found, rank, 0.3 * COMPUTE_S, slice(50, None))
    assert [(one.rank, one.kind, one.node) for one in verdict_of(layout, found).stragglers] == [
        (1, Kind.NODE, "slow"),
        (5, Kind.NODE, "slow"),
    ]


def test_a_node_that_holds_whole_stages_is_found_by_its_past() -> None:
    layout = pipeline(4, 2, node={r: f"n{r // 4}" for r in range(8)})
    found = seconds(layout, 100)
    for rank in (4, 5, 6, 7):
        found = slower(found, rank, 0.3 * COMPUTE_S, slice(50, None))
    stragglers = verdict_of(layout, found).stragglers
    assert [(one.rank, one.kind, one.node) for one in stragglers] == [
        (r, Kind.NODE, "n1") for r in (4, 5, 6, 7)
    ]
    assert all(one.from_step == 51 and one.factor == pytest.approx(1.3, abs=0.02) for one in stragglers)


def test_a_pipeline_without_replicas_is_judged_by_its_past() -> None:
    layout = pipeline(4, 1)
    (found,) = verdict_of(layout, slower(seconds(layout, 100), 2, 0.25 * COMPUTE_S, slice(50, 80))).stragglers
    assert (found.rank, found.from_step, found.to_step) == (2, 51, 80)


def test_a_slow_link_is_a_pair_and_no_slow_rank() -> None:
    layout = pipeline(3, 3)
    found = seconds(layout, 100)
    found[50:, 1, SEND] += 0.3  # stage 0, replica 1 -> stage 1, replica 1
    found[50:, 4, RECV] += 0.3
    (one,) = verdict_of(layout, found).stragglers
    assert (one.kind, one.rank, one.peer, one.from_step) == (Kind.LINK, 1, 4, 51)


def test_a_slow_rank_explains_who_waits_for_it() -> None:
    """As in the ByteDance trace AR: its pipeline waits in sends and receives, the other replicas in collectives."""
    layout = pipeline(3, 3)
    found = slower(seconds(layout, 100), 1, 0.5, slice(50, None))
    found[50:, :, WALL] += 0.5
    found[50:, [4, 7], RECV] += 0.5
    found[50:, [0, 2, 3, 5, 6, 8], COLL] += 0.5
    assert [(one.rank, one.kind) for one in verdict_of(layout, found).stragglers] == [(1, Kind.ONSET)]


def test_a_slow_data_loader_computes_like_its_peers_and_waits_least() -> None:
    layout = pipeline(1, 4)
    found = seconds(layout, 100)
    found[50:80, :, WALL] += 0.3
    found[50:80, [0, 1, 3], COLL] += 0.3
    (one,) = verdict_of(layout, found).stragglers
    assert (one.rank, one.kind, one.from_step, one.to_step) == (2, Kind.DATA_LOADER, 51, 80)


def test_garbage_collection_is_named() -> None:
    layout = pipeline(1, 4)
    found = slower(seconds(layout, 100), 3, 0.2, slice(50, None))
    found[50:, 3, GC] += 0.2
    (one,) = verdict_of(layout, found).stragglers
    assert (one.rank, one.kind) == (3, Kind.GARBAGE)


def test_a_long_last_stage_is_uneven_work_and_healthy() -> None:
    layout = pipeline(4, 2)
    found = seconds(layout, 60)
    for rank in (6, 7):
        found = slower(found, rank, 0.4, slice(None))
    verdict = verdict_of(layout, found)
    assert verdict.healthy
    (uneven,) = verdict.imbalance
    assert (uneven.kind, uneven.stage, uneven.ranks) == (Uneven.STAGE, 3, (6, 7))
    # even stages would take 0.9 + 0.4 / 4 = 1.0 s instead of 1.3
    assert uneven.cost_s == pytest.approx(60 * 0.3, rel=0.02)


def test_a_replica_slow_in_all_its_stages_has_more_work() -> None:
    layout = pipeline(3, 3)
    found = seconds(layout, 100)
    for rank in (1, 4, 7):
        found = slower(found, rank, 0.3, slice(40, 80))
    verdict = verdict_of(layout, found)
    assert verdict.healthy
    assert [(one.kind, one.ranks) for one in verdict.imbalance] == [(Uneven.REPLICA, (1, 4, 7))]


def test_all_ranks_slower_at_once_is_nobody() -> None:
    layout = pipeline(2, 4)
    found = seconds(layout, 100)
    found[50:] *= 1.5
    assert verdict_of(layout, found).stragglers == ()


def test_five_percent_is_a_trend_with_its_cost() -> None:
    layout = pipeline(1, 4)
    verdict = verdict_of(layout, slower(seconds(layout, 200), 0, 0.05 * COMPUTE_S, slice(None)))
    assert verdict.healthy
    (seen,) = verdict.watch
    assert (seen.rank, seen.kind) == (0, Watched.TREND)
    assert seen.cost_s == pytest.approx(200 * 0.05 * COMPUTE_S, rel=0.05)


def test_a_single_step_is_never_a_straggler() -> None:
    layout = pipeline(1, 4)
    verdict = verdict_of(layout, slower(seconds(layout, 100), 1, 30 * COMPUTE_S, [50]))
    assert verdict.healthy
    (seen,) = verdict.watch
    assert (seen.rank, seen.kind, seen.from_step, seen.to_step) == (1, Watched.SPIKE, 51, 51)
    assert seen.cost_s == pytest.approx(30 * COMPUTE_S, rel=0.01)


def test_a_rank_that_misses_steps_is_judged_by_those_it_has() -> None:
    layout = workers(4)
    found = slower(seconds(layout, 100), 2, 0.3, slice(50, None))
    found[::3, 2] = np.nan
    found[40:60, 0] = np.nan
    (one,) = verdict_of(layout, found).stragglers
    assert one.rank == 2
    assert one.from_step == pytest.approx(51, abs=2)


def test_live_verdicts_are_those_of_the_recording_up_to_there() -> None:
    layout = pipeline(2, 4)
    found = slower(seconds(layout, 90), 5, 0.25 * COMPUTE_S, slice(40, 60))
    live = StragglerDetector(layout)
    for i, step in enumerate(found):
        live.observe(i + 1, step)
        if i % 7 == 0 or i in (3, 47, 62):
            assert live.verdict() == verdict_of(layout, found[: i + 1])


def test_memory_does_not_grow_with_steps() -> None:
    import pickle

    layout = workers(4)
    detector = StragglerDetector(layout, window=32)
    sizes = []
    for i, step in enumerate(seconds(layout, 600)):
        detector.observe(i, step)
        if i in (200, 599):
            sizes.append(len(pickle.dumps(detector)))
    assert sizes[1] <= sizes[0] * 1.02


def test_steps_must_rise_and_measurements_fit() -> None:
    detector = StragglerDetector(workers(3))
    detector.observe(5, np.ones((3, 1)))
    with pytest.raises(ValueError, match="step 5 after step 5"):
        detector.observe(5, np.ones((3, 1)))
    with pytest.raises(ValueError, match=r"shape \(2, 1\) where \(3, 1\)"):
        detector.observe(6, np.ones((2, 1)))


def test_zero_times_are_no_fault() -> None:
    layout = Layout.of((0, 1, 2), columns=WHOLE)
    assert verdict_of(layout, np.zeros((50, 3, 1))).healthy
