"""Faults of the control plane that users of similar systems reported, by the number of the row in the collection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store.engine import Database
from tests.orchestrator.lifecycle.world import World, spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def lose_everything(world: World) -> None:
    """The head is gone for good: no node, no actor, no name is known any more."""
    world.cluster.nodes = {name: replace(node, alive=False) for name, node in world.cluster.nodes.items()}
    world.cluster.gangs.clear()


def bring_back(world: World) -> None:
    world.cluster.nodes = {name: replace(node, alive=True) for name, node in world.cluster.nodes.items()}


def test_row_30_a_job_whose_cluster_is_gone_does_not_run_for_ever(world: World) -> None:
    job_id = world.submit(spec(steps=50))
    world.until(lambda: world.job(job_id).step >= 5)
    lose_everything(world)
    world.until(lambda: world.state(job_id) is not JobState.RUNNING, rounds=10)
    assert world.kinds(job_id).count(EventKind.SUPERVISOR_LOST.value) == 1
    for _ in range(20):
        world.round()
    waiting = world.job(job_id)
    assert JobState(waiting.state) is JobState.QUEUED
    assert waiting.message, "a job that waits says what for"
    bring_back(world)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert world.job(job_id).incarnation == 2
    world.check_history(drained_to_the_end=False)


def test_row_30_one_that_is_lost_again_and_again_ends(world: World) -> None:
    job_id = world.submit(spec(steps=10_000, recovery={"max_hardware_failures": 2}))
    for incarnation in (1, 2, 3):
        world.until(lambda n=incarnation: world.job(job_id).incarnation == n and world.job(job_id).step)
        lose_everything(world)
        bring_back(world)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    job = world.job(job_id)
    assert (job.state, job.reason) == ("failed", Reason.RETRY_BUDGET_SPENT.value)


def test_row_32_the_loss_of_the_jobs_supervisor_is_not_the_loss_of_the_job(world: World) -> None:
    job_id = world.submit(spec(steps=20))
    world.until(lambda: world.job(job_id).step >= 5)
    world.cluster.kill_supervisors()
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    job = world.job(job_id)
    assert (job.state, job.incarnation, job.step) == ("succeeded", 2, 20)


def test_row_32_the_loss_of_the_controller_changes_nothing(world: World) -> None:
    job_id = world.submit(spec(steps=20))
    world.until(lambda: world.job(job_id).step >= 5)
    for _ in range(8):  # nobody asks the supervisor meanwhile
        world.cluster.tick()
    world.deaths += 1
    world.reconciler = world.new_controller()
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert (world.job(job_id).state, world.job(job_id).incarnation) == ("succeeded", 1)
    world.check_history()
