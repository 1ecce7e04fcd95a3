"""Small simulations whose results are worked out by hand. Two leaves x two nodes x two accelerators, no start-up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.placement.mesh import Mesh
from orchestrator.queue.policy import QueuePolicy
from orchestrator.simulate.discipline import FIFO, FIFO_WITHOUT_TOPOLOGY, PRODUCTION, Discipline
from orchestrator.simulate.faults import NodeChange
from orchestrator.simulate.jobs import Assumptions, Placed, Shape, SimulatedJob
from orchestrator.simulate.placing import Placer
from orchestrator.simulate.report import JobOutcome, Report
from orchestrator.simulate.simulation import Simulation
from orchestrator.spec.sections import RecoverySpec
from orchestrator.topology.fabric import Fabric
from tests.orchestrator.queue.small_cluster import claim, fabric, slots

BEGIN_S = 1_000.0
GIVEN = Assumptions(start_s=0.0, checkpoint_every_s=30.0, save_s=5.0, round_s=1.0)


def job(name: str, size: int, at_s: float, work_s: float, **fields: Any) -> SimulatedJob:
    own = {"grace_s": 10.0, **fields}
    mesh = own.pop("mesh", Mesh((1, 1, 1, size)))
    recovery = own.pop("recovery", RecoverySpec())
    return SimulatedJob(claim(name, size, **own), Shape(mesh), BEGIN_S + at_s, work_s, recovery)


def simulated(
    jobs: Sequence[SimulatedJob],
    discipline: str = PRODUCTION,
    *,
    cluster: Fabric | None = None,
    policy: QueuePolicy | None = None,
    **options: Any,
) -> Report:
    how = Discipline.of(discipline)
    how = replace(how, policy=policy or how.policy)
    return Simulation(cluster or fabric(), jobs, how, given=options.pop("given", GIVEN), **options).run()


def of(report: Report, name: str) -> JobOutcome:
    return next(outcome for outcome in report.outcomes if outcome.job_id == name)


def times(report: Report) -> dict[str, tuple[float | None, float | None]]:
    return {outcome.job_id: (outcome.waited_s, outcome.completed_s) for outcome in report.outcomes}


HEADED = [job("first", 6, 0, 100), job("wide", 8, 10, 50), job("small", 2, 20, 60)]


def test_production_lets_small_ones_pass_and_fifo_does_not() -> None:
    assert times(simulated(HEADED)) == {"first": (0, 100), "wide": (90, 140), "small": (0, 60)}
    assert times(simulated(HEADED, FIFO)) == {"first": (0, 100), "wide": (90, 140), "small": (130, 190)}


def test_sums() -> None:
    """Window 0 to 20 s: `first` holds 6 of 8 for all of it. All work is kept: goodput 1."""
    report = simulated(HEADED)
    assert (report.utilisation, report.goodput, report.makespan_s) == (0.75, 1.0, 150.0)
    assert report.tally["held_s"] == 6 * 100 + 8 * 50 + 2 * 60
    assert report.wait_s == {"mean": 30.0, "p50": 0.0, "p90": 90.0, "p95": 90.0, "p99": 90.0, "max": 90.0}
    assert (report.tally["starts"], report.tally["passed"]) == (3, 1)
    assert report.states == {"succeeded": 3}


def test_fragmentation() -> None:
    """One accelerator held of two on one node: of the seven free ones one is on a broken island, for all 10 s."""
    report = simulated([job("one", 1, 0, 100), job("late", 1, 10, 1)])
    assert report.fragmentation == pytest.approx(1 / 7, abs=1e-6)


def test_pipelines_lie_under_one_leaf_unless_nobody_knows_of_leaves() -> None:
    """Two of four accelerators of the first leaf are held: a pipeline of four goes to the other leaf, or across."""
    mesh = Mesh((2, 1, 2, 1))
    jobs = [
        job("one", 2, 0, 100),
        job("pipe", 4, 1, 10, mesh=mesh),
        job("pipe2", 2, 2, 10, mesh=Mesh((1, 1, 2, 1))),
    ]
    report = simulated(jobs)
    assert of(report, "pipe").nodes == ["l1n0", "l1n1"]
    assert (report.tally["pipelines"], report.cross_leaf_share) == (2, 0.0)
    report = simulated(jobs, FIFO_WITHOUT_TOPOLOGY)
    assert of(report, "pipe").nodes == ["l0n1", "l1n0"]
    assert (report.tally["pipelines"], report.tally["cross_leaf"]) == (2, 1)


def test_a_preempted_job_saves_waits_and_goes_on() -> None:
    """low runs 0-20, saves until 25; urgent 25-35; low goes on for its last 80 s: 35-115."""
    jobs = [job("low", 8, 0, 100, preemptible=True), job("urgent", 8, 20, 10, priority=1)]
    report = simulated(jobs)
    assert times(report) == {"low": (0, 115), "urgent": (5, 15)}
    assert (report.tally["preemptions"], of(report, "low").placements) == (1, 2)
    assert report.tally["held_s"] == 8 * (25 + 10 + 80)
    assert report.goodput == pytest.approx((100 + 10) / 115, abs=1e-6)


def test_too_little_grace_costs_the_work_since_the_last_checkpoint() -> None:
    """Told to go at 50, gone at 52 with the checkpoint of 30 s: 70 s are left, from 62 on."""
    jobs = [job("low", 8, 0, 100, preemptible=True, grace_s=2.0), job("urgent", 8, 50, 10, priority=1)]
    assert times(simulated(jobs)) == {"low": (0, 132), "urgent": (2, 12)}


def test_a_time_limit_ends_a_job_after_its_grace() -> None:
    """The work it had done when it was told to go is in the sentence: a second is a step."""
    report = simulated([job("long", 8, 0, 100, time_limit_s=40.0), job("next", 8, 1, 10)])
    assert of(report, "long").state == "failed"
    assert of(report, "long").message.startswith("Stopped after step 40. It held its accelerators for 40 s")
    assert times(report) == {"long": (0, 45), "next": (44, 54)}
    assert (report.tally["time_limits"], report.states) == (1, {"failed": 1, "succeeded": 1})


class TestLostNodes:
    CHANGES = (NodeChange(50.0, "l0n0", False), NodeChange(80.0, "l0n0", True))

    def test_a_gang_is_placed_again_from_its_checkpoint(self) -> None:
        """20 s of 50 are lost; 70 are left, on other nodes at once."""
        report = simulated([job("a", 2, 0, 100)], changes=self.CHANGES)
        assert times(report) == {"a": (0, 120)}
        assert (of(report, "a").placements, of(report, "a").nodes) == (2, ["l0n1"])
        assert (report.tally["node_losses"], report.goodput) == (1, round(100 / 120, 6))

    def test_or_waits_for_the_node(self) -> None:
        report = simulated([job("a", 8, 0, 100)], changes=self.CHANGES)
        assert times(report) == {"a": (0, 150)}

    def test_until_its_budget_is_spent(self) -> None:
        recovery = RecoverySpec(max_hardware_failures=0)
        report = simulated([job("a", 8, 0, 100, recovery=recovery)], changes=self.CHANGES)
        assert report.states == {"failed": 1}
        assert (
            "the 0 repairs that recovery.max_hardware_failures allows without a checkpoint are used"
            in of(report, "a").message
        )

    def test_a_job_that_finds_no_place_is_left_waiting(self) -> None:
        report = simulated([job("a", 8, 0, 100)], changes=self.CHANGES[:1])
        assert report.states == {"recovering": 1}
        assert "8 needed" in of(report, "a").message


def test_a_whole_leaf_goes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`big` (l0 and l1n0) loses two nodes and counts once; `small` beside it (l1n1) goes on. What goes at one time is
    one change of the fabric: a Placer for each of 1,000 nodes of a spine took minutes."""
    placers: list[Placer] = []

    def counting(seen: Fabric) -> Placer:
        placers.append(Placer(seen))
        return placers[-1]

    monkeypatch.setattr("orchestrator.simulate.simulation.Placer", counting)
    gone = [NodeChange(50.0, "l0n0", False), NodeChange(50.0, "l0n1", False)]
    report = simulated([job("big", 6, 0, 100), job("small", 2, 0, 100)], changes=gone)
    assert (report.tally["node_losses"], of(report, "big").state) == (1, "recovering")
    assert (of(report, "small").state, of(report, "small").placements) == ("succeeded", 1)
    assert len(placers) == 2


def test_a_job_that_runs_when_it_begins() -> None:
    """It has 40 s left, no start-up ahead of it, and 60 of the 110 s of its limit behind it."""
    placed = Placed(tuple(slots("l0n0")), 0.0)
    given = replace(GIVEN, start_s=25.0)
    old = replace(job("old", 2, -60, 40, time_limit_s=110.0), placed=placed, held_s=60.0)
    report = simulated([old, job("all", 8, -10, 5)], begin_s=BEGIN_S, given=given)
    assert times(report) == {"old": (0, 100), "all": (50, 80)}
    # What it held before is not held against the work that is left: all of it is kept.
    assert simulated([old], begin_s=BEGIN_S, given=given).goodput == 1.0
    unsaved = replace(old, work_s=60.0, placed=replace(placed, unsaved_s=20.0))
    report = simulated([unsaved], begin_s=BEGIN_S, given=given)
    assert (report.tally["held_s"], report.goodput) == (2 * 60, 1.0)
    over = replace(old, held_s=90.0)
    assert simulated([over], begin_s=BEGIN_S, given=given).tally["time_limits"] == 1


def test_shares_are_by_what_was_used() -> None:
    """Both want the cluster at 200, when `a` has held it for 200 s: `b` goes first though it came later."""
    jobs = [
        job("a1", 8, 0, 200, project="a"),
        job("a2", 8, 1, 10, project="a"),
        job("b1", 8, 2, 10, project="b"),
    ]
    assert times(simulated(jobs)) == {"a1": (0, 200), "a2": (209, 219), "b1": (198, 208)}


def test_the_same_twice() -> None:
    jobs = [job(f"j{i}", 1 + i % 5, i * 7 % 40, 10 + i * 13 % 50, project=f"p{i % 3}") for i in range(40)]
    assert simulated(jobs, seed=3) == simulated(jobs, seed=3)
