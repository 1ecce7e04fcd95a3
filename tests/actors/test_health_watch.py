"""Stragglers of running gangs: a rank that really computes more is named, a healthy gang is not accused.

A machine that has fewer cores than the gang has ranks tells by its wall times who was scheduled. What is judged then is
CPU time; on a machine with a core for each rank it is the wall clock. Either has to name the rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from actors.health_watch import HealthWatch
from orchestrator.health.finding import Category, Finding
from orchestrator.health.heat import unpacked
from orchestrator.health.live import LEARNED, WARM_STEPS
from orchestrator.health.phases import AT, ROW
from orchestrator.lifecycle.reports import EventKind, HealthReport, Outcome
from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Slot

pytestmark = pytest.mark.timeout(600)

SLOW_RANK, AFTER = 5, 60


def job(slow_rank: int | None, *, steps: int, after: int = 0, **sections: Any) -> dict[str, Any]:
    """Eight replicas of a model large enough that its computing is not lost in the cost of a step."""
    options = {"slow_rank": slow_rank, "after": after, "width": 96, "depth": 4, "head": 8, "positions": 64}
    return {
        "name": "stragglers",
        "model": {"import": "slow_model:build", "options": options},
        "parallelism": {"dp": 8},
        "training": {"steps": steps, "global_batch": 32, "sequence_length": 64, "eval_sequences": 2},
        "checkpoint": {"every": 0},
        **sections,
    }


def newest_health(driver: Any) -> HealthReport:
    found: HealthReport = [told for report in driver.reports for told in report.health][-1]
    return found


def stragglers(health: HealthReport) -> list[Finding]:
    return [one for one in health.findings if one.category is Category.STRAGGLER]


@pytest.mark.slow
def test_a_rank_that_computes_a_third_more_is_named(driver: Any, all_slots: tuple[Slot, ...]) -> None:
    driver.start(all_slots, job(SLOW_RANK, steps=130, after=AFTER))
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    told = [event for event in driver.events if event.kind is EventKind.STRAGGLER]
    assert [event.data["ranks"] for event in told] == [[SLOW_RANK]], [event.message for event in told]
    assert told[0].data["nodes"] == [all_slots[SLOW_RANK].node]
    assert told[0].message.startswith(f"Rank {SLOW_RANK} on node {all_slots[SLOW_RANK].node} computes 1.")
    health = newest_health(driver)
    (found,) = stragglers(health)
    assert found.ongoing
    # Building takes two of the forwards. A noisy step before counts in, and a fast job has every 2nd or 4th judged.
    assert abs(found.from_step - (AFTER - 1)) <= 12
    # A third of forward and backward, less where the rest of the execution weighs more.
    assert 1.15 <= found.factor <= 1.45
    compute = np.concatenate([unpacked(block, "compute") for block in health.blocks], axis=1)
    assert compute.shape[0] == 8
    assert int(np.nanmean(compute, axis=1).argmax()) == SLOW_RANK
    driver.assert_nothing_left()


@pytest.mark.slow
def test_a_healthy_gang_is_not_accused(driver: Any, all_slots: tuple[Slot, ...]) -> None:
    driver.start(all_slots, job(None, steps=400))
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert EventKind.STRAGGLER not in driver.kinds(), [event.message for event in driver.events]
    health = newest_health(driver)
    assert stragglers(health) == []
    assert sum(steps for block in health.blocks for _, _, steps in block.steps) > 20  # it was looked at


def test_nothing_is_measured_where_the_job_does_not_want_it(
    driver: Any, leaf_slots: tuple[Slot, ...]
) -> None:
    spec = job(0, steps=30, health={"stragglers": "off"}) | {"parallelism": {"dp": 2}}
    driver.start(leaf_slots[:2], spec)
    assert driver.end().outcome is Outcome.SUCCEEDED
    assert [report.health for report in driver.reports if report.health] == []


def rows(step: int, factor: float = 1.0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of two ranks with a core each; rank 1 computes `factor` times as long."""
    found = np.zeros((2, len(ROW)))
    found[:, 0], found[:, 1] = (0, 1), step
    for name, seconds in (("forward_s", 0.1), ("backward_s", 0.2), ("compute_cpu_s", 0.3)):
        found[:, 2 + AT[name]] = (seconds, seconds * factor)
    found[:, 2 + AT["collective_s"]] = (0.3 * factor - 0.3, 0.0)
    return found


SLOTS = (Slot("a", 0), Slot("b", 0))


def watching(**health: str) -> tuple[HealthWatch, list[EventKind]]:
    kinds: list[EventKind] = []
    document = {"name": "j", "parallelism": {"dp": 2}, "training": {"steps": 10_000}, "health": health}
    spec = JobSpec.model_validate(document)
    watch = HealthWatch(lambda kind, message, data: kinds.append(kind), spec)
    watch.begin(1, SLOTS)
    return watch, kinds


def test_an_attempt_that_ended_is_told_with_the_next() -> None:
    watch, kinds = watching()
    for step in range(1, 60):
        watch.take({"rows": rows(step, 1.5 if step > 30 else 1.0)})
    assert kinds == [EventKind.STRAGGLER]
    watch.begin(2, SLOTS)
    for step in range(40, 40 + WARM_STEPS + LEARNED):
        watch.take({"rows": rows(step)})
    first, second = watch.reports(at_once=True)
    assert (first.attempt, second.attempt) == (1, 2)
    assert [one.subject for one in first.findings if one.category is Category.STRAGGLER] == ["rank 1"]
    assert [one for one in second.findings if one.category is Category.STRAGGLER] == []
    assert watch.reports(at_once=True) == (first, second)  # until the end was heard
    assert kinds == [EventKind.STRAGGLER]  # a fresh attempt has recovered from nothing


def test_a_node_worth_replacing_is_told_once_where_the_job_wants_it() -> None:
    watch, kinds = watching(stragglers="replace")
    for step in range(1, 90):
        watch.take(
            {"rows": rows(step, 1.5 if step > 30 else 1.0)}
        )  # 0.15 s of 9,900 steps is more than 3 x 60 s
    assert kinds == [EventKind.STRAGGLER, EventKind.REPLACEMENT_ADVISED]


def test_a_defect_of_the_watch_ends_nothing() -> None:
    watch, kinds = watching()
    watch.take({"rows": "no array"})
    watch.take({"rows": rows(1)})
    assert kinds == []
    assert watch.reports(at_once=True) == ()
