"""The detector on rows as agents tell them: which rank is named, since when, by which clock, and that it recovers.

Measurements are drawn here: computing of a known mean with 2 % of noise, and waiting that fills up to the slowest rank,
as in a synchronous job. What must be found is what was put in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from orchestrator.health.assembly import PENDING, RewoundError, StepAssembly
from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.layout import Floats
from orchestrator.health.live import LEARNED, WARM_STEPS, LiveHealth
from orchestrator.health.news import NewsDesk, Turn
from orchestrator.health.phases import AT, ROW
from orchestrator.placement.mesh import Mesh
from orchestrator.spec.sections import ParallelismSpec

RANKS = 8
NODES = ("n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3")
FORWARD_S, BACKWARD_S = 0.1, 0.2
SEED = 20261202
Slowness = Callable[[int, int], float]
"""(rank, step) -> factor of what the rank computes."""


def never(rank: int, step: int) -> float:
    return 1.0


def rank_5(first: int, last: int, factor: float = 1.31) -> Slowness:
    return lambda rank, step: factor if rank == 5 and first <= step <= last else 1.0


def rows_of(
    step: int,
    slow: Slowness,
    dice: np.random.Generator,
    *,
    stretched: bool = False,
    often: float = 1.0,
    device: bool = False,
) -> Floats:
    """A step of all ranks. stretched: cores are shared, so a rank takes 2 to 6 times as long as it computes,
    `often` as a share of its steps."""
    factor = np.array([slow(rank, step) for rank in range(RANKS)]) * dice.normal(1.0, 0.02, RANKS)
    cpu = (FORWARD_S + BACKWARD_S) * factor
    wall = cpu.copy()
    if stretched:
        wall *= np.where(dice.random(RANKS) < often, dice.uniform(2.0, 6.0, RANKS), 1.0)
    rows = np.zeros((RANKS, len(ROW)))
    rows[:, 0], rows[:, 1] = np.arange(RANKS), step
    phases = rows[:, 2:]
    phases[:, AT["data_s"]], phases[:, AT["optimizer_s"]] = 0.001, 0.01
    phases[:, AT["forward_s"]], phases[:, AT["backward_s"]] = wall / 3, wall * 2 / 3
    phases[:, AT["collective_s"]] = wall.max() - wall + 0.002
    phases[:, AT["compute_cpu_s"]] = cpu
    if device:
        for name in ("receive_s", "send_s", "collective_s", "compute_cpu_s"):
            phases[:, AT[name]] = np.nan
    return rows


def run(
    steps: range, slow: Slowness, *, mesh: Mesh | None = None, stretched: bool = False, device: bool = False
) -> tuple[LiveHealth, list[tuple[int, Turn, str]]]:
    """The detector after `steps`, and the news with the step at which it was told."""
    live = LiveHealth(3, mesh or Mesh.of(ParallelismSpec(dp=RANKS)), NODES)
    desk, told = NewsDesk(), []
    dice = np.random.default_rng(SEED)
    for step in steps:
        live.take(rows_of(step, slow, dice, stretched=stretched, device=device))
        told += [(step, news.turn, news.sentence) for news in desk.news(live.findings())]
    return live, told


def stragglers(live: LiveHealth) -> list[Finding]:
    return [one for one in live.findings() if one.category is Category.STRAGGLER]


def test_a_rank_that_becomes_slow_is_named_with_its_node_and_cost_and_recovers() -> None:
    live, told = run(range(1, 200), rank_5(60, 120))
    (found,) = stragglers(live)
    assert (live.clock, found.clock) == (Clock.WALL, Clock.WALL)
    assert (found.attempt, found.subject, found.ranks, found.nodes) == (3, "rank 5", (5,), ("n2",))
    assert (found.kind, found.ongoing) == ("transient", False)
    assert abs(found.from_step - 60) <= 2
    assert abs(found.to_step - 120) <= 2
    assert found.factor == pytest.approx(1.31, abs=0.03)
    assert found.step_cost_s == pytest.approx(0.31 * (FORWARD_S + BACKWARD_S), rel=0.1)
    (found_at, turn, sentence), (recovered_at, other, recovery) = told
    assert (turn, other) == (Turn.FOUND, Turn.RECOVERED)
    assert 60 < found_at <= 80  # the bar: 20 steps at 1.25 times
    assert sentence.startswith("Rank 5 on node n2 computes 1.")
    assert "times as long as its peers since step 6" in sentence
    assert sentence.endswith("s a step.")
    assert 120 < recovered_at <= 140
    assert recovery.startswith("Rank 5 on node n2 is no longer slow after step 1")


def test_a_healthy_job_is_told_nothing_about() -> None:
    for how in ({}, {"stretched": True}, {"device": True}):
        live, told = run(range(1, 300), never, **how)
        assert told == [], how
        assert stragglers(live) == [], how


def test_a_second_time_is_told_a_second_time() -> None:
    def twice(rank: int, step: int) -> float:
        return 1.4 if rank == 5 and (60 <= step < 90 or 150 <= step < 190) else 1.0

    live, told = run(range(1, 190), twice)
    assert [turn for _, turn, _ in told] == [Turn.FOUND, Turn.RECOVERED, Turn.FOUND]
    assert [one.ongoing for one in stragglers(live)] == [False, True]


def test_where_cores_are_shared_cpu_time_is_judged() -> None:
    """Wall times differ by a factor of three at random; a rank that computes 1.3 times as much shows in CPU time."""
    live, _ = run(range(1, 120), rank_5(40, 200, 1.3), stretched=True)
    (found,) = stragglers(live)
    assert live.clock is Clock.CPU
    assert (found.subject, found.ongoing) == ("rank 5", True)
    assert found.factor == pytest.approx(1.3, abs=0.03)
    assert "s of CPU time a step" in found.sentence


def test_cores_that_come_to_be_shared_change_the_clock() -> None:
    live = LiveHealth(1, Mesh.of(ParallelismSpec(dp=RANKS)), NODES)
    dice = np.random.default_rng(SEED)
    for step in range(1, 60):
        live.take(rows_of(step, never, dice))
    assert live.clock is Clock.WALL
    for step in range(60, 120):
        live.take(rows_of(step, never, dice, stretched=True))
    assert live.clock is Clock.CPU
    assert stragglers(live) == []


def test_ranks_that_wait_for_each_other_share_cores_in_some_steps_only() -> None:
    """Eight ranks of a pipeline on two cores: at the middle of its steps each had a core for itself."""
    live = LiveHealth(1, Mesh.of(ParallelismSpec(dp=RANKS)), NODES)
    dice = np.random.default_rng(SEED)
    for step in range(1, 200):
        live.take(rows_of(step, never, dice, stretched=True, often=0.25))
    assert live.clock is Clock.CPU
    assert stragglers(live) == []


def test_a_rank_alone_that_loses_its_core_is_found_by_the_wall_clock() -> None:
    live = LiveHealth(1, Mesh.of(ParallelismSpec(dp=RANKS)), NODES)
    dice = np.random.default_rng(SEED)
    for step in range(1, 120):
        rows = rows_of(step, never, dice)
        if step > 40:
            rows[5, 2 + AT["forward_s"]] *= 2
            rows[5, 2 + AT["collective_s"]] = 0.002
        live.take(rows)
    (found,) = stragglers(live)
    assert (live.clock, found.subject) == (Clock.WALL, "rank 5")


def test_accelerators_are_judged_by_their_own_clock() -> None:
    live, _ = run(range(1, 1200, 10), rank_5(400, 2000, 1.3), device=True)  # one step of ten is timed
    (found,) = stragglers(live)
    assert (live.clock, found.subject, found.kind) == (Clock.DEVICE, "rank 5", "onset")


def test_ranks_of_one_node_are_one_finding() -> None:
    def node_2(rank: int, step: int) -> float:
        return 1.3 if NODES[rank] == "n2" and step >= 60 else 1.0

    live, told = run(range(1, 160), node_2)
    (found,) = stragglers(live)
    assert (found.subject, found.ranks, found.nodes, found.kind) == ("node n2", (4, 5), ("n2",), "node")
    assert found.sentence.startswith("Node n2 is slow: its 2 ranks compute 1.")
    assert found.factor == pytest.approx(1.3, abs=0.03)
    assert Turn.RECOVERED not in [turn for _, turn, _ in told]  # the ranks told of before are the node's


def test_uneven_stages_are_no_machines_fault() -> None:
    mesh = Mesh.of(ParallelismSpec(pp=2, dp=4, microbatches=4))

    def last_stage(rank: int, step: int) -> float:
        return 1.4 if mesh.coordinates(rank)["pp"] == 1 else 1.0

    live, told = run(range(1, 120), last_stage, mesh=mesh)
    assert stragglers(live) == []
    (uneven,) = [one for one in live.findings() if one.category is Category.IMBALANCE]
    assert (uneven.kind, uneven.factor) == ("stage", pytest.approx(1.4, abs=0.02))
    assert [sentence for _, _, sentence in told] == [uneven.sentence.replace(*_grown(uneven, told))]


def _grown(uneven: Finding, told: list[tuple[int, Turn, str]]) -> tuple[str, str]:
    """The sentence told differs by what was measured since: replaced whole."""
    return uneven.sentence, told[0][2]


def test_the_first_steps_are_not_judged() -> None:
    live, _ = run(range(1, WARM_STEPS + LEARNED), rank_5(1, 100, 3.0))
    assert live.clock is None
    assert live.findings() == ()
    assert live.heat() == []


def test_a_job_that_goes_back_is_judged_anew() -> None:
    live = LiveHealth(1, Mesh.of(ParallelismSpec(dp=RANKS)), NODES)
    dice = np.random.default_rng(SEED)
    for step in range(1, 60):
        live.take(rows_of(step, rank_5(20, 100), dice))
    assert len(stragglers(live)) == 1
    live.take(rows_of(40, never, dice))
    assert live.clock is None
    for step in range(41, 80):
        live.take(rows_of(step, never, dice))
    assert live.clock is Clock.WALL
    assert stragglers(live) == []


def test_steps_wait_for_all_ranks_and_gaps_are_gaps() -> None:
    assembly = StepAssembly(2)

    def row(rank: int, step: int) -> list[float]:
        return [rank, step, *([float(step)] * (len(ROW) - 2))]

    assert list(assembly.take(np.array([row(0, 1), row(0, 2), row(0, 3)]))) == []
    given = list(assembly.take(np.array([row(1, 1), row(1, 3)])))
    assert [step for step, _ in given] == [1, 2, 3]
    assert [np.isnan(found[1, 0]) for _, found in given] == [False, True, False]
    assert list(assembly.take(np.array([row(0, step) for step in range(4, 4 + PENDING)]))) == []
    (first,) = assembly.take(np.array([row(0, 4 + PENDING)]))  # rank 1 says nothing: the oldest gives way
    assert first[0] == 4
    with pytest.raises(RewoundError):
        list(assembly.take(np.array([row(0, 5)])))
