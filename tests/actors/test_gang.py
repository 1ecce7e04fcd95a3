"""A gang on a real local cluster: it sits where it was placed, survives a killed rank, and ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from actors import processes
from orchestrator.lifecycle.reports import EventKind, Outcome
from orchestrator.lifecycle.states import Reason
from orchestrator.topology.fabric import Slot

pytestmark = pytest.mark.timeout(1500)

TOY = "toy_program:run"


def test_gang_starts_exactly_where_it_was_placed_and_leaves_nothing(
    driver: Any, toy_spec: dict[str, Any], all_slots: tuple[Slot, ...], wait_for: Any, slots_are_free: Any
) -> None:
    # A rank order that no default would give: nodes reversed, indexes swapped on each node.
    slots = tuple(reversed(all_slots))
    driver.start(slots, toy_spec, program=TOY, extras={"steps": 3})
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert [(fact.node, fact.index) for fact in report.ranks] == [(slot.node, slot.index) for slot in slots]
    assert [record.step for record in driver.steps] == [1, 2, 3]
    # The sum over ranks 0..7, computed by the ranks themselves over the rendezvous of their own.
    assert {record.loss for record in driver.steps} == {28.0}
    assert driver.kinds() == [
        EventKind.ATTEMPT_STARTED,
        EventKind.CERTIFIED,
        EventKind.TRAINING_STARTED,
        EventKind.ATTEMPT_ENDED,
        EventKind.FINISHED,
    ]
    assert {(tail.attempt, tail.rank) for tail in report.logs} == {(1, rank) for rank in range(8)}
    assert "step 3" in report.logs[0].text
    # The supervisor gives the slots back at the end, before anybody reaps.
    wait_for(slots_are_free, "slots are free without a reaper")
    assert [pid for pid in driver.rank_pids() if processes.alive(pid)] == []
    driver.assert_all_free()


@pytest.mark.slow  # test_exactness.py kills ranks in every run
def test_killed_rank_restarts_all_ranks_in_place(
    driver: Any, toy_spec: dict[str, Any], all_slots: tuple[Slot, ...]
) -> None:
    driver.start(all_slots, toy_spec, program=TOY, extras={"steps": 60, "pause_s": 0.1})
    before = driver.until(lambda report: report.step >= 5, "five steps are done")
    os.kill(before.ranks[5].pid, signal.SIGKILL)
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert (report.attempt, report.restarts_used) == (2, 1)
    died = driver.event(EventKind.RANK_DIED)
    assert (died.data["rank"], died.data["cause"]) == (5, "signal")
    assert "SIGKILL" in died.message
    resumed = driver.event(EventKind.RESUMED)
    assert resumed.attempt == 2
    assert resumed.data["step"] >= 5
    assert next(record.step for record in driver.steps if record.attempt == 2) == resumed.data["step"] + 1
    assert {fact.pid for fact in report.ranks}.isdisjoint({fact.pid for fact in before.ranks})
    assert [(fact.node, fact.index) for fact in report.ranks] == [
        (slot.node, slot.index) for slot in all_slots
    ]
    driver.assert_nothing_left()


def test_input_that_is_refused_before_the_first_step_ends_the_job_at_once(
    driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    driver.start(leaf_slots, small_spec, program=TOY, extras={"raise_rank": 1, "raise_step": 0})
    report = driver.end()
    assert (report.outcome, report.reason, report.attempt) == (Outcome.FAILED, Reason.USER_ERROR, 1)
    assert "rank 1 on" in report.message
    assert "input that is no good" in report.message
    driver.assert_nothing_left()


@pytest.mark.slow
def test_a_module_of_the_job_is_imported_on_its_ranks(
    driver: Any, toy_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    """`own_model` lies on the PYTHONPATH of the cluster's nodes."""
    driver.start(leaf_slots[:2], imported(toy_spec, "own_model:build"))
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert [record.step for record in driver.steps] == [1, 2]
    driver.assert_nothing_left()


def test_a_module_that_cannot_be_imported_ends_the_job_at_once(
    driver: Any, toy_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    driver.start(leaf_slots[:2], imported(toy_spec, "no_such_models:build"))
    report = driver.end()
    assert (report.outcome, report.reason, report.attempt) == (Outcome.FAILED, Reason.USER_ERROR, 1)
    assert "there is no module no_such_models on this rank's node" in report.message
    driver.assert_nothing_left()


def imported(spec: dict[str, Any], function: str) -> dict[str, Any]:
    training = {"steps": 2, "global_batch": 4, "sequence_length": 32}
    return {**spec, "model": {"import": function}, "parallelism": {"dp": 2}, "training": training}


@pytest.mark.slow  # tests/web/test_running_job.py reads the log of a running rank in every run
def test_log_of_a_living_rank_is_read_by_offset(
    driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    driver.start(leaf_slots, small_spec, program=TOY, extras={"steps": 600, "pause_s": 0.05})
    driver.until(lambda report: report.step >= 3, "three steps are done")
    whole = driver.launcher.read_log(driver.ref, rank=0, attempt=None, offset=0, limit=1 << 16)
    assert whole.attempt == 1
    assert b"step 1 " in whole.data
    part = driver.launcher.read_log(driver.ref, rank=0, attempt=1, offset=4, limit=6)
    assert part.data == whole.data[4:10]
    end = driver.launcher.read_log(driver.ref, rank=0, attempt=1, offset=-5, limit=100)
    assert end.offset + len(end.data) == end.size
    assert Path(driver.directory, "logs", "attempt-0001", "rank-00000.log").exists()


def test_a_node_that_has_too_few_cpus_is_named_at_once(
    driver: Any, toy_spec: dict[str, Any], all_slots: tuple[Slot, ...]
) -> None:
    """Two slots and two CPUs a node: two ranks of 1.5 CPUs need three."""
    driver.start(all_slots, {**toy_spec, "resources": {"cpus_per_rank": 1.5}}, program=TOY)
    report = driver.end()
    assert (report.outcome, report.reason) == (Outcome.START_FAILED, Reason.NEVER_FITS)
    assert report.message == (
        "Not started: node l0n0 has 2 CPUs, and its 2 ranks need 3 of them (resources.cpus_per_rank 1.5); "
        "ask for less."
    )
    driver.assert_nothing_left()
