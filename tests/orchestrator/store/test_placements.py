"""The ledger of slots, and nodes as they were seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.placement.placement import AxisOutcome, Placement
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import Tier
from orchestrator.store import jobs, nodes, placements
from orchestrator.store.engine import Database
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.links import Link

NOW = datetime(2026, 5, 4, tzinfo=UTC)
FABRIC = Fabric(
    (
        Node("n0", 4, {Tier.LEAF: "l0", Tier.SPINE: "s0"}, {0: "p0", 1: "p0", 2: "p1", 3: "p1"}, "H100"),
        Node(
            "n1",
            2,
            {Tier.ISLAND: "n1"},
            {},
            None,
            alive=False,
            weak_pairs=frozenset({(0, 1)}),
            partitioned=frozenset({1}),
        ),
        Node("n2", 1, schedulable=False, suspect=True, rails={0: ("mlx5_0", "mlx5_1")}),
    )
)
DECIDED = Placement(
    (Slot("n0", 3), Slot("n1", 0)), (AxisOutcome("dp", Tier.ANY, "preferred", 1, Tier.LEAF, 0),), ("because",)
)


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        found = jobs.insert(
            session, JobSpec.model_validate({"name": "j", "training": {"steps": 3}}), now=NOW
        ).job.id
        store(session, found, 1)
    return found


def store(session: object, job_id: str, incarnation: int) -> None:
    placements.insert(
        session,  # type: ignore[arg-type]
        job_id,
        incarnation,
        DECIDED,
        FABRIC,
        first_attempt=1,
        restarts_used=0,
        deaths_at_step=(7, 2),
        now=NOW,
    )


def test_what_was_decided_comes_back(database: Database, job_id: str) -> None:
    with database.read() as session:
        row = placements.newest(session, job_id)
    assert row is not None
    assert placements.slots_of(row) == DECIDED.slots
    assert placements.nodes_of(row) == FABRIC.nodes[:2]
    assert row.axes == [
        {"axis": "dp", "asked": "any", "mode": "preferred", "groups": 1, "widest": "leaf", "outside": 0}
    ]
    assert (row.explanation, row.deaths_step, row.deaths_count) == (["because"], 7, 2)


def test_slots_are_held_until_released(database: Database, job_id: str) -> None:
    with database.write() as session:
        assert placements.holders(session) == {
            Slot("n0", 3): (job_id, "j", 0),
            Slot("n1", 0): (job_id, "j", 1),
        }
        placements.end(session, job_id, 1, now=NOW)
        assert len(placements.holders(session)) == 2
        placements.release(session, job_id, 1, now=NOW)
        assert placements.holders(session) == {}
        assert placements.unreleased_of(session, job_id) is None
        store(session, job_id, 2)
        found = placements.unreleased_of(session, job_id)
        assert found is not None
        assert found.incarnation == 2


def test_cursors_move_from_where_they_were_seen_only(database: Database, job_id: str) -> None:
    with database.write() as session:
        assert placements.advance(session, job_id, 1, seen=(0, 0), reached=(5, 3))
        assert not placements.advance(session, job_id, 1, seen=(0, 0), reached=(6, 3))
        assert placements.advance(session, job_id, 1, seen=(5, 3), reached=(5, 3))


def test_a_node_lost_for_long_is_forgotten_unless_its_slots_are_held(database: Database, job_id: str) -> None:
    """n0 is held by the job; Ray lists `listed` among its dead nodes without a size for ever."""
    late = NOW + nodes.FORGOTTEN_AFTER
    dead = Node("listed", 0, alive=False)

    def known(now: datetime) -> list[str]:
        nodes.observe(session, Fabric((Node("n3", 1), dead)), now=now)
        return [row.name for row in nodes.every(session)]

    with database.write() as session:
        nodes.observe(session, Fabric((Node("n0", 4), Node("n2", 1), Node("listed", 2))), now=NOW)
        assert known(late - timedelta(seconds=1)) == ["listed", "n0", "n2", "n3"]
        assert known(late) == ["n0", "n3"]
        assert known(late) == ["n0", "n3"]
        placements.release(session, job_id, 1, now=late)
        assert known(late) == ["n3"]


def test_a_declared_node_that_is_not_there_stays(database: Database) -> None:
    with database.write() as session:
        declared = Fabric((Node("n0", 4, alive=False),))
        nodes.observe(session, declared, now=NOW)
        nodes.observe(session, declared, now=NOW + 2 * nodes.FORGOTTEN_AFTER)
        assert [(row.name, row.alive) for row in nodes.every(session)] == [("n0", False)]


def test_links_come_back_and_those_that_nobody_tells_any_more_go(database: Database) -> None:
    wide = Link("ib-ndr", 47.1e9, 8e-6, 400e9, measured=True)
    told = Fabric((Node("n2", 1), Node("n10", 1)), {Tier.LEAF: wide, Tier.ANY: Link(uplink=2.5e9)})
    with database.write() as session:
        nodes.observe(session, told, now=NOW)
    with database.write() as session:
        assert nodes.known_fabric(session) == told  # nodes in natural order too
        less = Fabric(told.nodes, {Tier.LEAF: Link("ib-ndr", 40e9)})
        nodes.observe(session, less, now=NOW)
    with database.read() as session:
        assert nodes.known_fabric(session) == less


def test_the_fabric_comes_back_as_it_was_seen(database: Database) -> None:
    with database.write() as session:
        nodes.observe(session, FABRIC, now=NOW)
        assert nodes.known_fabric(session) == FABRIC
        nodes.observe(session, Fabric(FABRIC.nodes[1:]), now=NOW)
        assert [(row.name, row.alive) for row in nodes.every(session)] == [
            ("n0", False),
            ("n1", False),
            ("n2", True),
        ]
