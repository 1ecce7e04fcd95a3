"""The queue in the controller's hands: what a job is told, and that a preempted one comes back. 2 x 2 x 2 slots."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.lifecycle.ports import GangRef
from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.queue.policy import ProjectPolicy, QueuePolicy
from orchestrator.recovery.timeouts import CANCEL_S
from orchestrator.store import leases, placements
from orchestrator.store.engine import Database
from orchestrator.store.tables import Event
from tests.orchestrator.lifecycle.world import World, spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def told(world: World, job_id: str, kind: EventKind) -> list[Event]:
    return [event for event in world.events(job_id) if event.kind == kind.value]


class TestPreemption:
    def test_a_preempted_job_goes_back_to_the_queue_and_ends_well(self, world: World) -> None:
        low = world.submit(spec("low", ranks=8, steps=30, queue={"preemptible": True, "grace_s": 7.0}))
        world.until(lambda: world.job(low).step >= 3)
        urgent = world.submit(spec("urgent", ranks=4, steps=2, queue={"priority": 5}))
        world.until(lambda: world.state(low) is JobState.QUEUED)
        assert world.cluster.history[GangRef(low, 1)].grace_s == 7.0
        (event,) = told(world, low, EventKind.PREEMPTED)
        assert event.message == (
            f"It gives way to urgent ({urgent}) of priority 5, its own is 0; it has 7 s to save a checkpoint."
        )
        world.until(lambda: world.state(urgent).is_terminal)
        assert world.state(urgent) is JobState.SUCCEEDED
        changes = [(e.data["from"], e.data["to"]) for e in told(world, low, EventKind.STATE_CHANGED)]
        assert (
            changes[-2:] == [("running", "stopping"), ("stopping", "queued")]
            or ("stopping", "queued") in changes
        )
        world.until(lambda: world.state(low).is_terminal and world.is_clean())
        assert world.state(low) is JobState.SUCCEEDED
        first, second = world.placements(low)
        assert (first.vacate_reason, second.vacate_reason) == ("preempted", None)
        assert second.first_attempt == 2
        world.check_history()

    def test_it_costs_no_restart(self, world: World) -> None:
        queue = {"preemptible": True}
        low = world.submit(spec("low", ranks=8, steps=12, recovery={"max_restarts": 0}, queue=queue))
        world.until(lambda: world.state(low) is JobState.RUNNING)
        world.submit(spec("urgent", ranks=8, steps=1, queue={"priority": 1}))
        world.until(lambda: world.state(low).is_terminal and world.is_clean())
        assert (world.state(low), world.job(low).restarts) == (JobState.SUCCEEDED, 0)
        assert world.job(low).incarnation == 2

    def test_its_slots_go_to_the_job_it_was_stopped_for(self, world: World) -> None:
        """Others wait as well, and are older: all of them stay off."""
        low = world.submit(spec("low", ranks=8, steps=500, queue={"preemptible": True}))
        world.until(lambda: world.state(low) is JobState.RUNNING)
        small = [world.submit(spec(f"small-{i}", ranks=2, steps=2)) for i in range(4)]
        urgent = world.submit(spec("urgent", ranks=8, steps=2, queue={"priority": 1}))
        world.until(lambda: world.state(urgent) is JobState.SUCCEEDED)
        started = [
            told(world, job, EventKind.PLACED)[0].at for job in [urgent, *small] if world.placements(job)
        ]
        assert started == sorted(started)
        assert len(told(world, low, EventKind.PREEMPTED)) == 1

    def test_row_62_one_that_does_not_go_is_ended_by_force_after_its_grace_and_not_before(
        self, world: World
    ) -> None:
        low = world.submit(spec("low", ranks=8, steps=10_000, queue={"preemptible": True, "grace_s": 30.0}))
        world.until(lambda: world.state(low) is JobState.RUNNING)
        gang = world.cluster.only_gang()
        gang.stubborn = gang.still = True
        world.submit(spec("urgent", ranks=8, steps=1, queue={"priority": 1}))
        world.until(lambda: world.state(low) is JobState.STOPPING)
        began = world.now
        world.until(lambda: world.state(low) is JobState.QUEUED, rounds=1000)
        waited_s = (world.now - began).total_seconds()
        assert 30.0 + CANCEL_S <= waited_s <= 30.0 + CANCEL_S + 2
        assert "ended by force" in world.job(low).message or world.job(low).reason == Reason.NO_ROOM.value

    def test_a_node_that_is_lost_meanwhile_changes_nothing(self, world: World) -> None:
        low = world.submit(spec("low", ranks=4, steps=500, queue={"preemptible": True}))
        world.until(lambda: world.state(low) is JobState.RUNNING)
        gang = world.cluster.only_gang()
        gang.stubborn = True
        world.submit(spec("urgent", ranks=8, steps=1, queue={"priority": 1}))
        world.until(lambda: world.state(low) is JobState.STOPPING)
        world.cluster.kill_supervisors()
        world.until(lambda: world.state(low) is JobState.QUEUED)
        world.until(lambda: world.state(low) is JobState.RUNNING)
        assert world.job(low).restarts == 0

    def test_a_cancel_goes_before_it(self, world: World) -> None:
        low = world.submit(spec("low", ranks=8, steps=500, queue={"preemptible": True}))
        world.until(lambda: world.state(low) is JobState.RUNNING)
        world.cluster.only_gang().still = True
        world.submit(spec("urgent", ranks=8, steps=1, queue={"priority": 1}))
        world.until(lambda: world.state(low) is JobState.STOPPING)
        world.cluster.only_gang().still = False
        world.cancel(low)
        world.until(lambda: world.state(low).is_terminal)
        assert world.state(low) is JobState.CANCELLED


def test_a_job_that_reaches_its_time_limit_fails_with_its_reason(world: World) -> None:
    long = world.submit(spec("long", steps=10_000, queue={"time_limit_s": 10.0}))
    world.until(lambda: world.state(long).is_terminal and world.is_clean())
    job = world.job(long)
    assert (job.state, job.reason) == ("failed", Reason.TIME_LIMIT.value)
    assert "It held its accelerators for 10 s, its queue.time_limit_s" in job.message
    assert len(told(world, long, EventKind.TIME_LIMIT_REACHED)) == 1
    world.check_history()


def test_earlier_placements_count_against_the_limit(world: World) -> None:
    """Lost after some 5 s of its 10; the second placement has the rest."""
    long = world.submit(spec("long", steps=10_000, queue={"time_limit_s": 10.0}))
    world.until(lambda: world.job(long).step >= 14)
    first_s = 14 * 0.25
    world.cluster.kill_supervisors()
    world.until(lambda: world.state(long).is_terminal and world.is_clean())
    first, second = world.placements(long)
    assert first.released_at is not None
    assert second.released_at is not None
    held_s = sum(
        (row.released_at - row.placed_at).total_seconds() for row in (first, second) if row.released_at
    )
    assert (first.released_at - first.placed_at).total_seconds() >= first_s
    assert 10.0 <= held_s <= 13.0


def test_a_project_over_its_quota_waits_and_says_so(database: Database) -> None:
    world = World(database, policy=QueuePolicy(projects={"small": ProjectPolicy(quota=4)}))
    holder = world.submit(spec("holder", ranks=4, steps=20, queue={"project": "small"}))
    second = world.submit(spec("second", ranks=2, steps=1, queue={"project": "small"}))
    other = world.submit(spec("other", ranks=2, steps=1))
    world.until(lambda: world.state(other).is_terminal)
    job = world.job(second)
    assert (job.state, job.reason) == ("queued", Reason.OVER_QUOTA.value)
    assert job.message == "project small holds 4 of its quota of 4 accelerators, 2 needed"
    assert [event.message for event in told(world, second, EventKind.QUEUED)] == [job.message]
    world.until(lambda: world.state(second).is_terminal and world.state(holder).is_terminal)
    assert world.state(second) is JobState.SUCCEEDED


def test_a_reservation_is_told_to_both(world: World) -> None:
    world.submit(spec("holder", ranks=4, steps=10_000, queue={"time_limit_s": 3600.0}))
    wide = world.submit(spec("wide", ranks=8))
    later = world.submit(spec("later", ranks=2))
    world.until(lambda: world.job(later).reason == Reason.RESERVED.value)
    assert "8 accelerators are kept for it, at 2026-01-02 04:0" in world.job(wide).message
    assert f"kept for wide ({wide}), which is ahead of it" in world.job(later).message
    short = world.submit(spec("short", ranks=2, steps=1, queue={"time_limit_s": 600.0}))
    world.until(lambda: world.state(short).is_terminal)
    (placed,) = told(world, short, EventKind.PLACED)
    assert placed.message.endswith("this takes nothing that wide needs when its turn comes.")


def test_what_projects_used_is_read_from_the_store(world: World) -> None:
    job_id = world.submit(spec("a", ranks=4, steps=4, queue={"project": "vision"}))
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    (row,) = world.placements(job_id)
    with world.database.read() as session:
        (span,) = placements.spans_since(session, world.now - timedelta(days=1), now=world.now)
        assert placements.spans_since(session, world.now, now=world.now) == []
        held = placements.held_before(session, [job_id])
    assert row.released_at is not None
    assert (span.project, span.size) == ("vision", 4)
    assert (span.from_s, span.to_s) == (row.placed_at.timestamp(), row.released_at.timestamp())
    assert held == {job_id: pytest.approx(span.to_s - span.from_s)}


class TestWhatIsShown:
    def test_what_is_kept_for_a_job_while_it_waits(self, world: World) -> None:
        """All eight slots, when the limit and the grace of the job there are over."""
        world.submit(spec("holder", ranks=4, steps=10_000, queue={"time_limit_s": 20.0, "grace_s": 5.0}))
        world.until(lambda: len(world.cluster.gangs) == 1)
        holder = world.placements(world.cluster.only_gang().order.job_id)[0]
        large = world.submit(spec("large", parallelism={"tp": 2, "dp": 4}, steps=1))
        world.until(lambda: world.job(large).reservation is not None)
        kept = world.job(large).reservation
        assert kept is not None
        start_at = datetime.fromtimestamp(round((holder.placed_at + timedelta(seconds=25)).timestamp()), UTC)
        assert kept == {
            "size": 8,
            "nodes": ["l0n0", "l0n1", "l1n0", "l1n1"],
            "start_at": start_at.isoformat(),
        }
        world.until(lambda: world.state(large) is JobState.STARTING)
        assert world.job(large).reservation is None

    def test_the_policy_and_what_the_projects_used(self, database: Database) -> None:
        world = World(database, policy=QueuePolicy(projects={"vision": ProjectPolicy(quota=4)}))
        world.submit(spec("holder", ranks=4, steps=10_000, queue={"project": "vision"}))
        world.until(lambda: len(world.cluster.gangs) == 1)
        world.now += timedelta(days=1)
        world.reconciler = world.new_controller()
        world.round()
        with database.read() as session:
            lease = leases.current(session)
        assert lease is not None
        assert lease.queue is not None
        assert lease.queue["policy"]["projects"] == {"vision": {"weight": 1.0, "quota": 4}}
        assert lease.queue["use"]["vision"] == pytest.approx(2.0, rel=1e-3), "a half-life: half of its four"
