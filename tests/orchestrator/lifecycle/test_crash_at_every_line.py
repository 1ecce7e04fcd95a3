"""The controller killed at every line at which something outside has just changed or is about to.

A run without a death counts those lines: before and after the effect of each launcher call and of each commit.
Then runs with a death at one line each and a new controller after it. Every run must end as the first did.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.lifecycle.states import JobState
from orchestrator.store.engine import Database
from orchestrator.store.tables import Table
from tests.orchestrator.lifecycle.fake_cluster import CrashAt
from tests.orchestrator.lifecycle.world import World, spec

Scenario = Callable[[World], None]
ALL_SLOTS = {"tp": 2, "dp": 4}
"""A plan that takes the whole cluster, and that the solver is soon done with."""


def plain(world: World) -> None:
    job_id = world.submit(spec())
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert world.job(job_id).incarnation == 1
    assert (world.job(job_id).step, world.job(job_id).evaluation) == (
        2,
        {"step": 2, "loss": 1.5, "unigram_loss": 3.0},
    )
    world.check_history()


def contended(world: World) -> None:
    """The second job waits for the first one's slots."""
    first, second = (
        world.submit(spec("first", steps=1, parallelism=ALL_SLOTS)),
        world.submit(spec("second", ranks=4, steps=1)),
    )
    world.until(lambda: world.state(second).is_terminal and world.is_clean())
    assert (world.state(first), world.state(second)) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert world.kinds(second).count("queued") == 1
    world.check_history()


def node_lost(world: World) -> None:
    job_id = world.submit(spec())
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    lost = world.placements(job_id)[0].slots[0][0]
    world.cluster.lose_node(lost)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert [row.incarnation for row in world.placements(job_id)] == [1, 2]
    assert all(node != lost for node, _ in world.placements(job_id)[1].slots)
    assert world.job(job_id).restarts == 1
    world.check_history()


def node_lost_with_a_spare(world: World) -> None:
    """The ranks of the lost node go to the other one of its leaf; the gang does not end."""
    world.cluster.patience = 60
    job_id = world.submit(spec(steps=4))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    lost = world.placements(job_id)[0].slots[0][0]
    world.cluster.lose_node(lost)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    (placement,) = world.placements(job_id)
    assert placement.revision == 1
    assert {node for node, _ in placement.slots} == {"l0n1" if lost == "l0n0" else "l0n0"}
    assert [facts["node"] for facts in placement.ranks] == [node for node, _ in placement.slots]
    assert world.kinds(job_id).count("moved") == 1
    world.check_history()


def supervisor_killed(world: World) -> None:
    job_id = world.submit(spec())
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    world.cluster.kill_supervisors()
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert world.job(job_id).incarnation == 2
    world.check_history(drained_to_the_end=False)


def cancelled(world: World) -> None:
    job_id = world.submit(spec(steps=50))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    world.cancel(job_id)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.CANCELLED
    assert world.kinds(job_id).count("cancel-requested") == 1
    world.check_history()


def preempted(world: World) -> None:
    low = world.submit(spec("low", steps=6, parallelism=ALL_SLOTS, queue={"preemptible": True}))
    world.until(lambda: world.state(low) is JobState.RUNNING)
    urgent = world.submit(spec("urgent", steps=1, parallelism=ALL_SLOTS, queue={"priority": 1}))
    world.until(lambda: world.state(low).is_terminal and world.state(urgent).is_terminal and world.is_clean())
    assert (world.state(low), world.state(urgent)) == (JobState.SUCCEEDED, JobState.SUCCEEDED)
    assert (world.job(low).incarnation, world.job(low).restarts) == (2, 0)
    assert world.kinds(low).count("preempted") == 1
    world.check_history()


SCENARIOS: tuple[Scenario, ...] = (
    plain,
    contended,
    node_lost,
    node_lost_with_a_spare,
    supervisor_killed,
    cancelled,
    preempted,
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "stride",
    [pytest.param(1, marks=pytest.mark.slow, id="every-line"), pytest.param(5, id="every-fifth-line")],
)
def test_death_at_the_lines(scenario: Scenario, stride: int, database: Database) -> None:
    undisturbed = World(database)
    scenario(undisturbed)
    lines = undisturbed.crash.count
    assert lines > 40
    for k in range(stride // 2, lines, stride):
        _empty(database)
        world = World(database, crash=CrashAt(k))
        try:
            scenario(world)
        except AssertionError as error:
            raise AssertionError(f"death at line {k} of {lines}") from error
        assert world.deaths == 1, f"line {k} was not reached"


@pytest.mark.parametrize("scenario", [plain, node_lost], ids=lambda scenario: scenario.__name__)
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_death_at_some_lines_on_postgresql(scenario: Scenario, database: Database) -> None:
    for k in (6, 21, 36, 47):
        _empty(database)
        scenario(World(database, crash=CrashAt(k)))


def _empty(database: Database) -> None:
    with database.write() as session:
        for table in reversed(Table.metadata.sorted_tables):
            session.execute(table.delete())
