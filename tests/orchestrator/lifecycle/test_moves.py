"""A running job that loses nodes: the controller gives its ranks another place, and no slot twice."""

from __future__ import annotations

import pytest

from orchestrator.lifecycle.record import Record
from orchestrator.lifecycle.reports import Unwanted
from orchestrator.lifecycle.states import JobState
from orchestrator.lifecycle.view import read_job
from orchestrator.placement.moved import Moved
from orchestrator.placement.placement import Placement
from orchestrator.queue.admission import Start
from orchestrator.spec.job import JobSpec
from orchestrator.store import cordons, nodes, placements
from orchestrator.store.engine import Database
from orchestrator.topology.fabric import Fabric, Slot
from tests.orchestrator.lifecycle.fake_cluster import FakeCluster
from tests.orchestrator.lifecycle.world import World, spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
PATIENCE = 60


def world_of(database: Database, leaves: int, nodes: int) -> World:
    """Nodes of two slots."""
    world = World(database, FakeCluster(leaves, nodes, 2))
    world.cluster.patience = PATIENCE
    return world


def replicas(name: str, count: int, steps: int) -> JobSpec:
    return spec(name, ranks=count, training={"steps": steps, "global_batch": 4 * count})


def nodes_of(world: World, job_id: str) -> list[str]:
    return [node for node, _ in world.placements(job_id)[-1].slots]


def running(world: World, job_id: str) -> None:
    world.until(lambda: world.state(job_id) is JobState.RUNNING)


def test_row_44_only_the_lost_node_is_replaced(database: Database) -> None:
    """One of three nodes is lost, a fourth is free: the ranks of the two others stay."""
    world = world_of(database, 1, 4)
    job_id = world.submit(replicas("job", 6, 12))
    running(world, job_id)
    before = nodes_of(world, job_id)
    (spare,) = set(world.cluster.nodes) - set(before)
    world.cluster.lose_node(before[2])
    world.until(lambda: "moved" in world.kinds(job_id))
    assert nodes_of(world, job_id) == [spare if node == before[2] else node for node in before]
    event = next(event for event in world.events(job_id) if event.kind == "moved")
    assert (event.data["rung"], event.data["lost"]) == ("spare", [before[2]])
    assert event.data["ranks"] == [rank for rank, node in enumerate(before) if node == before[2]]
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert world.job(job_id).incarnation == 1
    world.check_history()


def test_row_2_one_gang_is_whole_and_the_other_holds_nothing(database: Database) -> None:
    """Two gangs share a node that is lost; one node is free, with room for the ranks of one of them."""
    world = world_of(database, 1, 4)
    first, second = (world.submit(replicas(name, 3, 200)) for name in ("first", "second"))
    running(world, second)
    (shared,) = set(nodes_of(world, first)) & set(nodes_of(world, second))
    third = world.submit(spec("third", ranks=1, steps=200))
    running(world, third)
    world.cluster.lose_node(shared)
    world.until(lambda: world.state(second) is JobState.QUEUED)
    assert (world.state(first), world.job(first).incarnation) == (JobState.RUNNING, 1)
    assert nodes_of(world, first).count(nodes_of(world, third)[0]) == 1
    with database.read() as session:
        assert placements.unreleased_of(session, second) is None
    assert world.cluster.double_booked == []


def test_without_a_spare_the_whole_job_is_placed_again(database: Database) -> None:
    """Two replicas on one node, which is lost; the other leaf has a free node, the job's own leaf has none."""
    world = world_of(database, 2, 1)
    job_id = world.submit(spec(ranks=2, steps=8))
    running(world, job_id)
    (lost,) = set(nodes_of(world, job_id))
    world.cluster.lose_node(lost)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert [row.revision for row in world.placements(job_id)] == [0, 0]
    assert world.state(job_id) is JobState.SUCCEEDED
    world.check_history()


def test_the_broken_replica_goes_under_another_leaf_and_gives_its_living_node_back(
    database: Database,
) -> None:
    """tp 2 x pp 2 x dp 2 on nodes of two: a pipeline is two nodes of a leaf. One of its nodes is lost, no other of its
    leaf is free: both go to the third leaf, and the one that lives is free for others once it has been left."""
    world = world_of(database, 3, 2)
    plan = {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2}
    job_id = world.submit(spec(steps=12, parallelism=plan))
    running(world, job_id)
    before = nodes_of(world, job_id)
    assert set(before[:4]) == {"l0n0", "l0n1"}
    world.cluster.lose_node(before[0])
    world.until(lambda: "moved" in world.kinds(job_id))
    (gang,) = world.cluster.gangs.values()
    assert (set(nodes_of(world, job_id)[:4]), nodes_of(world, job_id)[4:]) == ({"l2n0", "l2n1"}, before[4:])
    event = next(event for event in world.events(job_id) if event.kind == "moved")
    assert (event.data["rung"], event.data["ranks"]) == ("elsewhere", [0, 1, 2, 3])
    assert event.data["passed_over"] == [f"no node of leaf l0 is free to stand in for {before[0]}"]
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    assert gang.revision == 1
    assert world.placements(job_id)[0].leaving == []
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    world.check_history()


def test_row_10_a_gang_moves_whole_or_waits(database: Database) -> None:
    """One pipeline over two nodes of a leaf; the free nodes are under the other leaf: never one here, one there."""
    world = world_of(database, 2, 2)
    job_id = world.submit(spec(steps=12, parallelism={"tp": 2, "pp": 2, "microbatches": 2}))
    running(world, job_id)
    lost = nodes_of(world, job_id)[0]
    world.cluster.lose_node(lost)
    world.until(lambda: world.job(job_id).incarnation == 2)
    assert {node[:2] for node in nodes_of(world, job_id)} == {"l1"}
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    world.check_history()


@pytest.mark.parametrize("min_dp", [None, 2])
def test_with_leave_the_job_goes_on_with_the_replicas_that_are_whole(
    database: Database, min_dp: int | None
) -> None:
    """tp 2 x dp 3 on all three nodes: one is lost, and nothing stands in for it."""
    world = world_of(database, 1, 3)
    plan = {"tp": 2, "dp": 3, "microbatches": 2}
    training = {"steps": 8, "global_batch": 12}
    recovery = {} if min_dp is None else {"min_dp": min_dp}
    job_id = world.submit(spec(parallelism=plan, training=training, recovery=recovery))
    running(world, job_id)
    before = nodes_of(world, job_id)
    world.cluster.lose_node(before[0])
    if min_dp is None:
        world.until(lambda: world.state(job_id) is JobState.QUEUED)
        return
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    (placement,) = world.placements(job_id)
    assert (placement.replicas, placement.revision, nodes_of(world, job_id)) == (2, 1, before[2:])
    event = next(event for event in world.events(job_id) if event.kind == "moved")
    assert (event.data["rung"], event.data["replicas"]) == ("fewer-replicas", 2)
    assert len(event.data["passed_over"]) == 2
    assert world.state(job_id) is JobState.SUCCEEDED
    world.check_history()


def test_several_failures_one_after_the_other(database: Database) -> None:
    """The node, then the spare that took over from it, then a third."""
    world = world_of(database, 1, 4)
    job_id = world.submit(spec(ranks=2, steps=60))
    running(world, job_id)
    lost: list[str] = []
    for _ in range(3):
        lost.append(nodes_of(world, job_id)[0])
        world.cluster.lose_node(lost[-1])
        world.until(lambda: world.kinds(job_id).count("moved") == len(lost))
        running(world, job_id)
    assert len(set(lost)) == 3
    (placement,) = world.placements(job_id)
    assert (placement.revision, placement.incarnation) == (3, 1)


def test_two_nodes_at_once_go_to_two_spares(database: Database) -> None:
    world = world_of(database, 1, 5)
    job_id = world.submit(replicas("job", 6, 30))
    running(world, job_id)
    before = nodes_of(world, job_id)
    lost = sorted(set(before))[:2]
    for node in lost:
        world.cluster.lose_node(node)
    world.until(lambda: world.state(job_id) is JobState.RECOVERING)
    running(world, job_id)
    after = nodes_of(world, job_id)
    assert len(set(after)) == 3
    assert not set(lost) & set(after)
    assert [now for was, now in zip(before, after, strict=True) if was not in lost] == [
        node for node in before if node not in lost
    ]
    assert world.job(job_id).incarnation == 1


def test_a_supervisor_that_has_given_up_leaves_no_slot_behind(database: Database) -> None:
    """The change is stored, the supervisor never hears of it: its slots come back with those of the gang."""
    world = world_of(database, 1, 3)
    world.cluster.patience = 2
    job_id = world.submit(spec(ranks=2, steps=8))
    running(world, job_id)
    world.launcher.move = lambda *_, **__: None  # type: ignore[method-assign]
    world.cluster.lose_node(nodes_of(world, job_id)[0])
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert [row.revision for row in world.placements(job_id)] == [1, 0]


def test_a_slot_is_given_once_whoever_decides_first(database: Database) -> None:
    """The queue and a repair look at the same free node, then both store: the second one finds it taken."""
    world = world_of(database, 1, 2)
    running_id = world.submit(spec("running", ranks=2, steps=500))
    running(world, running_id)
    waiting_id = world.submit(spec("waiting", ranks=2))
    own = nodes_of(world, running_id)[0]
    (free,) = set(world.cluster.nodes) - {own}
    wanted = Placement((Slot(free, 0), Slot(free, 1)), ())
    fabric = Fabric(tuple(world.cluster.nodes.values()))
    record = Record(database, world.reconciler._record.token, world.clock)
    with database.read() as session:
        views = read_job(session, running_id), read_job(session, waiting_id)
    moved = Moved(wanted, (0, 1), (), near=True)
    assert record.moved(views[0], [own], moved, fabric.nodes)
    assert not record.placed(views[1], Start(waiting_id, wanted, "Now."), fabric)
    assert not record.moved(views[0], [own], moved, fabric.nodes), (
        "that view is of a placement before the change"
    )
    with database.read() as session:
        assert set(placements.holders(session)) == {Slot(free, 0), Slot(free, 1)}


def test_a_repair_finds_a_slot_taken_that_the_queue_gave_away(database: Database) -> None:
    world = world_of(database, 1, 2)
    running_id = world.submit(spec("running", ranks=2, steps=500))
    running(world, running_id)
    with database.read() as session:
        view = read_job(session, running_id)
    other = world.submit(spec("other", ranks=2, steps=500))
    running(world, other)
    (free,) = set(nodes_of(world, other))
    moved = Moved(Placement((Slot(free, 0), Slot(free, 1)), ()), (0, 1), (), near=True)
    record = Record(database, world.reconciler._record.token, world.clock)
    assert not record.moved(view, ["x"], moved, tuple(world.cluster.nodes.values()))
    assert world.placements(running_id)[0].revision == 0


def would_do_without(world: World, job_id: str, node: str) -> None:
    (gang,) = (gang for ref, gang in world.cluster.gangs.items() if ref.job_id == job_id)
    gang.unwanted = Unwanted(node, "Rank 2 is slow")


def cordoned(world: World) -> dict[str, tuple[str, str]]:
    with world.database.read() as session:
        return {node: (row.who, row.reason) for node, row in cordons.by_node(session).items()}


def test_a_slow_node_is_left_and_cordoned(database: Database) -> None:
    """Its slots stay held until the gang has gone, and no later job gets them."""
    world = world_of(database, 1, 4)
    job_id = world.submit(replicas("job", 6, 60))
    running(world, job_id)
    before = nodes_of(world, job_id)
    slow = before[2]
    (spare,) = set(world.cluster.nodes) - set(before)
    would_do_without(world, job_id, slow)
    world.until(lambda: "moved" in world.kinds(job_id))
    assert {node for node, _ in world.placements(job_id)[0].leaving} <= {slow}
    assert nodes_of(world, job_id) == [spare if node == slow else node for node in before]
    event = next(event for event in world.events(job_id) if event.kind == "moved")
    assert (event.data["rung"], event.data["lost"], event.data["cordoned"]) == ("spare", [], slow)
    assert cordoned(world) == {slow: ("atoll", "straggler: Rank 2 is slow")}
    running(world, job_id)
    world.until(lambda: world.placements(job_id)[0].leaving == [])
    second = world.submit(spec("second", ranks=2))
    for _ in range(20):
        world.round()
    assert world.state(second) is JobState.QUEUED, "only the cordoned node is free"
    with database.read() as session:
        shown = {node.name: node.schedulable for node in nodes.known_fabric(session).nodes}
    assert [name for name, takes_work in shown.items() if not takes_work] == [slow]
    with database.write() as session:
        cordons.lift(session, slow)
    world.until(lambda: world.state(second) is not JobState.QUEUED)
    assert world.job(job_id).restarts == 0
    assert world.cluster.double_booked == []


def test_without_a_place_the_slow_node_stays(database: Database) -> None:
    """No node is free, and no replica is given up for it, though the job could do with fewer."""
    world = world_of(database, 1, 3)
    job_id = world.submit(
        spec(ranks=6, steps=20, training={"steps": 20, "global_batch": 24}, recovery={"min_dp": 1})
    )
    running(world, job_id)
    before = nodes_of(world, job_id)
    would_do_without(world, job_id, before[0])
    (gang,) = world.cluster.gangs.values()
    world.until(lambda: bool(gang.refused))
    assert gang.refused[0].startswith(f"no node of leaf l0 is free to stand in for {before[0]}")
    assert (nodes_of(world, job_id), world.placements(job_id)[0].revision, cordoned(world)) == (before, 0, {})
    world.until(lambda: world.state(job_id).is_terminal)
    assert world.state(job_id) is JobState.SUCCEEDED


def test_a_stored_change_is_told_until_it_is_carried_out(database: Database) -> None:
    """The controller dies before it tells; the node is no finding any more, and what is stored holds."""
    world = world_of(database, 1, 2)
    job_id = world.submit(spec(ranks=2, steps=200))
    running(world, job_id)
    (slow,) = set(nodes_of(world, job_id))
    tell, told = world.launcher.move, []
    world.launcher.move = lambda *_, **__: told.append(1)  # type: ignore[method-assign]
    would_do_without(world, job_id, slow)
    world.until(lambda: bool(told))
    (gang,) = world.cluster.gangs.values()
    gang.unwanted = None
    world.launcher.move = tell  # type: ignore[method-assign]
    world.until(lambda: gang.revision == 1)
    assert {slot.node for slot in gang.order.slots} == set(nodes_of(world, job_id)) != {slow}
