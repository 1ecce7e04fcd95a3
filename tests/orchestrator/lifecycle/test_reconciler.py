"""What the controller does about jobs, seen from SQL and from the cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from orchestrator.lifecycle import reconciler
from orchestrator.lifecycle.ports import GangRef
from orchestrator.lifecycle.reconciler import Reconciler
from orchestrator.lifecycle.record import QUEUED_TOLD_EVERY
from orchestrator.lifecycle.reports import EventKind, GangOrder, GangPhase
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.recovery.timeouts import SUPERVISOR_SILENT_S
from orchestrator.store import attempts, checkpoints, jobs, leases, logs, metrics, nodes
from orchestrator.store.engine import Database
from orchestrator.store.errors import JobAlreadyEndedError, LeadershipLostError
from orchestrator.store.tables import Job
from orchestrator.topology.fabric import Fabric, Slot
from tests.orchestrator.lifecycle.fake_cluster import FakeCluster, FakeGang
from tests.orchestrator.lifecycle.world import World, spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""The store is tested on both databases by its own tests, the reconciler by `test_crash_at_every_line`."""


@pytest.fixture
def world(database: Database) -> World:
    return World(database)


def test_a_job_runs_and_all_of_it_is_kept(world: World) -> None:
    job_id = world.submit(spec(ranks=4, steps=3))
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    job = world.job(job_id)
    assert (job.state, job.reason, job.step, job.restarts) == ("succeeded", "completed", 3, 0)
    assert job.loss == pytest.approx(4.0 / 3)  # FakeGang: loss = 4 / step
    assert job.tokens_per_s == 640.0
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.created_at <= job.started_at <= job.finished_at
    with world.database.read() as session:
        (attempt,) = attempts.of_job(session, job_id)
        assert (attempt.number, attempt.outcome, attempt.end_step) == (1, "succeeded", 3)
        kept = [(c.step, c.state) for c in checkpoints.of_job(session, job_id)]
        assert kept == [(3, "committed"), (2, "pruned"), (1, "pruned")]
        log = logs.get(session, job_id, rank=3)
        assert log is not None
        assert log.text == "log of 3\n"
        assert {row.name for row in nodes.every(session)} == {"l0n0", "l0n1", "l1n0", "l1n1"}
    (placement,) = world.placements(job_id)
    assert placement.certified
    assert [facts["rank"] for facts in placement.ranks] == [0, 1, 2, 3]
    changes = [(e.data["from"], e.data["to"]) for e in world.events(job_id) if e.kind == "state-changed"]
    assert changes == [("queued", "starting"), ("starting", "running"), ("running", "succeeded")]
    world.check_history()


def test_a_job_that_does_not_fit_says_why_once_and_lets_smaller_ones_pass(world: World) -> None:
    first = world.submit(spec("first", ranks=4, steps=30))
    large = world.submit(spec("large", ranks=8, steps=1))
    small = world.submit(spec("small", ranks=2, steps=1))
    world.until(lambda: world.state(small).is_terminal)
    assert world.state(first) is JobState.RUNNING
    waiting = world.job(large)
    assert (waiting.state, waiting.reason) == ("queued", Reason.NO_ROOM.value)
    assert waiting.message
    world.until(lambda: world.state(large).is_terminal and world.is_clean())
    assert world.state(large) is JobState.SUCCEEDED
    assert world.kinds(large).count("queued") == 1
    world.check_history()


def test_a_job_that_waits_long_tells_of_changes_now_and_then(world: World) -> None:
    """The sentence on the job is always the newest one; the history has one for many."""
    holder = world.submit(spec("holder", ranks=4, steps=10_000))
    waiting = world.submit(spec("waiting", ranks=8))
    world.until(lambda: world.state(holder) is JobState.RUNNING and bool(world.job(waiting).message))
    sentences = set()
    for _ in range(3):
        small = world.submit(spec("small", ranks=2, steps=8))
        world.until(lambda: world.state(small) is JobState.RUNNING)  # noqa: B023 - called before the loop goes on
        world.round()
        sentences.add(world.job(waiting).message)
        world.until(lambda: world.state(small).is_terminal and len(world.cluster.gangs) == 1)  # noqa: B023
        world.round()
        sentences.add(world.job(waiting).message)
    assert len(sentences) == 2
    assert world.kinds(waiting).count("queued") == 1
    told = world.job(waiting).message
    world.now += QUEUED_TOLD_EVERY
    small = world.submit(spec("small", ranks=2, steps=8))
    world.until(lambda: world.job(waiting).message != told)
    assert world.kinds(waiting).count("queued") == 2


def test_a_job_waits_for_cpus_that_another_one_holds(world: World) -> None:
    for name, node in world.cluster.nodes.items():
        world.cluster.nodes[name] = replace(node, cpus=4.0)
    holder = world.submit(spec("holder", ranks=4, steps=12, resources={"cpus_per_rank": 3}))
    waiting = world.submit(spec("waiting", ranks=4, steps=1, resources={"cpus_per_rank": 2}))
    world.until(lambda: world.state(holder) is JobState.RUNNING)
    job = world.job(waiting)
    assert (job.state, job.reason) == ("queued", Reason.NO_ROOM.value)
    assert job.message == "node l0n0: 1 of 4 CPUs free, 2 needed for its rank (resources.cpus_per_rank 2)"
    world.until(lambda: world.state(waiting).is_terminal and world.is_clean())
    assert world.state(waiting) is JobState.SUCCEEDED
    assert [row.cpus_per_rank for row in world.placements(waiting)] == [2.0]


def test_a_job_that_can_never_fit_says_so(world: World) -> None:
    job_id = world.submit(spec(ranks=16))
    for _ in range(8):
        world.round()
    assert (world.state(job_id), world.job(job_id).reason) == (JobState.QUEUED, Reason.NEVER_FITS.value)
    assert world.kinds(job_id).count("queued") == 1


def test_row_34_slots_are_free_only_when_processes_are_gone(world: World) -> None:
    first = world.submit(spec("first", ranks=8, steps=1))
    second = world.submit(spec("second", ranks=8, steps=1))
    world.until(lambda: world.state(first).is_terminal)
    gang = world.cluster.gangs[GangRef(first, 1)]
    gang.reaps_needed = 6
    while GangRef(first, 1) in world.cluster.gangs:
        assert world.state(second) is JobState.QUEUED
        world.round()
    world.until(lambda: world.state(second).is_terminal and world.is_clean())
    world.check_history()


class TestCancel:
    def test_before_any_controller(self, world: World) -> None:
        job_id = world.submit(spec())
        world.cancel(job_id)
        world.round()
        assert world.state(job_id) is JobState.CANCELLED
        assert world.cluster.history == {}

    def test_while_it_cannot_be_placed(self, world: World) -> None:
        job_id = world.submit(spec(ranks=16))
        world.until(lambda: world.job(job_id).reason == Reason.NEVER_FITS.value)
        world.cancel(job_id)
        world.round()
        assert world.state(job_id) is JobState.CANCELLED

    @pytest.mark.parametrize("rounds", range(1, 8))
    def test_in_any_round(self, world: World, rounds: int) -> None:
        job_id = world.submit(spec(steps=6))
        for _ in range(rounds):
            world.round()
        world.cancel(job_id)
        world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
        assert world.state(job_id) is JobState.CANCELLED
        assert world.job(job_id).reason == Reason.CANCELLED_BY_USER.value
        world.check_history()

    def test_while_it_waits_to_be_placed_again(self, world: World) -> None:
        job_id = world.submit(spec(ranks=8, steps=9))
        world.until(lambda: world.state(job_id) is JobState.RUNNING)
        world.cluster.lose_node("l0n0")
        world.until(lambda: world.state(job_id) is JobState.QUEUED)
        assert world.job(job_id).reason in (Reason.NO_ROOM.value, Reason.NEVER_FITS.value)
        world.cancel(job_id)
        world.until(lambda: world.state(job_id) is JobState.CANCELLED and world.is_clean())

    def test_by_force_when_the_supervisor_does_not_obey(self, world: World) -> None:
        job_id = world.submit(spec(steps=10_000))
        world.until(lambda: world.state(job_id) is JobState.RUNNING)
        world.cluster.only_gang().stubborn = True
        world.cluster.only_gang().still = True
        world.cancel(job_id)
        world.until(lambda: world.state(job_id) is JobState.STOPPING)
        world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
        assert world.state(job_id) is JobState.CANCELLED
        assert "by force" in world.job(job_id).message

    def test_an_ended_job_cannot_be_cancelled(self, world: World) -> None:
        job_id = world.submit(spec(steps=1))
        world.until(lambda: world.state(job_id) is JobState.SUCCEEDED)
        with pytest.raises(JobAlreadyEndedError, match="succeeded"):
            world.cancel(job_id)


def test_failure_keeps_the_traceback(world: World) -> None:
    job_id = world.submit(spec(steps=9))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    world.cluster.only_gang().fail_with = "Traceback\n  boom"
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    job = world.job(job_id)
    assert (job.state, job.reason, job.message) == ("failed", Reason.NO_PROGRESS.value, "Traceback\n  boom")
    world.check_history()


def test_repairs_elsewhere_are_limited(world: World) -> None:
    job_id = world.submit(spec(steps=50, recovery={"max_hardware_failures": 2}))
    for incarnation in (1, 2, 3):
        world.until(lambda: world.state(job_id) is JobState.RUNNING)
        assert world.job(job_id).incarnation == incarnation
        world.cluster.kill_supervisors()
        world.until(lambda: world.state(job_id) is not JobState.RUNNING)
    world.until(world.is_clean)
    assert world.state(job_id) is JobState.FAILED
    assert world.job(job_id).reason == Reason.RETRY_BUDGET_SPENT.value
    assert world.job(job_id).restarts == 2
    assert [row.restarts_used for row in world.placements(job_id)] == [0, 1, 2]
    assert [row.first_attempt for row in world.placements(job_id)] == [1, 2, 3]


def test_an_unreachable_cluster_is_shown_and_changes_no_state(world: World) -> None:
    running = world.submit(spec("running", ranks=8, steps=30))
    world.until(lambda: world.state(running) is JobState.RUNNING)
    queued = world.submit(spec("queued"))
    world.until(lambda: world.job(queued).reason == Reason.NO_ROOM.value)
    world.cluster.unreachable = True
    world.until(lambda: world.job(running).reason == Reason.CLUSTER_UNREACHABLE.value)
    late = world.submit(spec("late"))
    world.until(lambda: world.job(late).reason == Reason.CLUSTER_UNREACHABLE.value)
    states = (world.state(running), world.state(queued), world.state(late))
    assert states == (JobState.RUNNING, JobState.QUEUED, JobState.QUEUED)
    with world.database.read() as session:
        lease = leases.current(session)
    assert lease is not None
    assert lease.cluster_reachable is False
    assert "no answer" in lease.cluster_message
    world.cluster.unreachable = False
    world.until(lambda: world.job(running).reason == Reason.NONE.value, rounds=40)
    world.until(lambda: world.job(queued).reason in (Reason.NO_ROOM.value, Reason.COMPLETED.value))
    world.until(
        lambda: all(world.state(job).is_terminal for job in (running, queued, late)) and world.is_clean()
    )
    world.check_history()


def test_a_supervisor_that_never_answers_again_is_ended_by_force(world: World) -> None:
    """As one that was stopped by SIGSTOP: the cluster answers, so it is not the cluster's trouble."""
    job_id = world.submit(spec(steps=30))
    world.until(lambda: world.job(job_id).step > 0)
    world.cluster.only_gang().silent = True
    silent_at_s = world.clock_s()
    world.until(lambda: "supervisor-lost" in world.kinds(job_id), rounds=600)
    assert SUPERVISOR_SILENT_S <= world.clock_s() - silent_at_s < 2 * SUPERVISOR_SILENT_S
    assert "no answer for" in world.job(job_id).message
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean(), rounds=600)
    assert world.state(job_id) is JobState.SUCCEEDED
    assert [row.incarnation for row in world.placements(job_id)] == [1, 2]
    world.check_history(drained_to_the_end=False)


def test_a_supervisor_that_answers_in_time_stays(world: World) -> None:
    """Silence while the whole cluster gives no answer is not counted, and an answer begins the count anew."""
    job_id = world.submit(spec(steps=2000))
    world.until(lambda: world.job(job_id).step > 0)
    gang = world.cluster.only_gang()
    for _ in range(3):
        gang.silent = True
        ends_s = world.clock_s() + 0.4 * SUPERVISOR_SILENT_S
        world.until(lambda ends_s=ends_s: world.clock_s() >= ends_s, rounds=600)
        gang.silent = False
        step = world.job(job_id).step
        world.until(lambda step=step: world.job(job_id).step > step, rounds=600)
    world.cluster.unreachable = True
    ends_s = world.clock_s() + 2 * SUPERVISOR_SILENT_S
    world.until(lambda: world.clock_s() >= ends_s, rounds=1200)
    world.cluster.unreachable = False
    step = world.job(job_id).step
    world.until(lambda: world.job(job_id).step > step, rounds=600)
    assert "supervisor-lost" not in world.kinds(job_id)


def test_orphans_are_reaped(world: World) -> None:
    stray = GangRef("0192f000-0000-7000-8000-000000000000", 1)
    order = GangOrder(stray.job_id, 1, 1, 0, (0, 0), {}, (Slot("l0n0", 0),), Fabric(()), "/storage", 1)
    world.cluster.gangs[stray] = FakeGang(order)
    job_id = world.submit(spec(steps=300))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    world.cluster.gangs[GangRef(job_id, 1)].still = True
    world.until(lambda: stray not in world.cluster.gangs, rounds=300)
    assert world.state(job_id) is JobState.RUNNING
    assert len(world.cluster.gangs) == 1


def test_memory_of_jobs_that_are_over_is_given_back_and_that_of_others_is_not(world: World) -> None:
    over = world.submit(spec("over"))
    world.until(lambda: world.state(over).is_terminal and world.is_clean())
    lasting = world.submit(spec("lasting", steps=300))
    world.until(lambda: world.state(lasting) is JobState.RUNNING)
    world.cluster.remembered |= {lasting, over, "of nobody"}
    world.reconciler.reap_orphans()
    assert world.cluster.remembered == {lasting}


def test_one_jobs_trouble_stops_no_other(world: World) -> None:
    bad, good = world.submit(spec("bad")), world.submit(spec("good"))
    world.launcher.broken_starts[bad] = ValueError("a bug")
    world.until(lambda: world.state(good).is_terminal)
    assert world.state(good) is JobState.SUCCEEDED
    assert world.state(bad) is JobState.STARTING
    for _ in range(12):
        world.round()
    told = [event.message for event in world.events(bad) if event.kind == EventKind.CONTROLLER_ERROR.value]
    assert len(told) == 1
    assert "ValueError: a bug" in told[0]
    del world.launcher.broken_starts[bad]
    world.until(lambda: world.state(bad) is JobState.SUCCEEDED and world.is_clean())
    world.check_history()


def test_integers_beyond_64_bit_from_a_rank_program_are_bounded(world: World) -> None:
    """SQLite takes 64 bit, an INTEGER of PostgreSQL 32. A job whose program says more goes on."""
    job_id = world.submit(spec(steps=40))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    gang, huge = world.cluster.only_gang(), 2**70
    gang.steps.append(replace(gang.steps[-1], seq=len(gang.steps) + 1, step=huge, tokens=huge))
    gang.say(EventKind.RESUMED, "resumed", step=huge, path="x")
    gang.say(EventKind.CHECKPOINT_COMMITTED, "c", step=huge, path="x", bytes=huge, pruned=[huge, -huge])
    gang.say(EventKind.CHECKPOINT_SKIPPED, "s", step=-huge, reason="damaged")
    gang.say(EventKind.EVALUATED, "e", step=huge, loss=1.0, unigram_loss=2.0)
    gang.step = huge
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    assert EventKind.CONTROLLER_ERROR.value not in world.kinds(job_id)
    assert world.job(job_id).step == 2**31 - 1
    with world.database.read() as session:
        assert next((c.step, c.bytes) for c in checkpoints.of_job(session, job_id)) == (2**31 - 1, 2**63 - 1)
        assert 2**63 - 1 in [point.tokens for point in metrics.after(session, job_id)]


def test_a_controller_that_stops_begins_with_no_other_orphan(world: World) -> None:
    for number in range(3):
        order = GangOrder(f"orphan-{number}", 1, 1, 0, (0, 0), {}, (), Fabric(()), "/storage", 0)
        world.cluster.gangs[GangRef(order.job_id, 1)] = FakeGang(order, reaps_needed=1)
    reap = world.launcher.reap

    def reap_and_stop(gang: GangRef) -> bool:
        world.reconciler.stop()  # SIGTERM comes meanwhile
        return reap(gang)

    world.launcher.reap = reap_and_stop  # type: ignore[method-assign]
    world.reconciler.reap_orphans()
    assert len(world.cluster.gangs) == 2


@pytest.mark.parametrize("when", [JobState.QUEUED, JobState.RUNNING])
def test_a_stored_spec_that_no_longer_parses_fails_its_job_alone(world: World, when: JobState) -> None:
    bad, good = world.submit(spec("bad", steps=9)), world.submit(spec("good", steps=2))
    if when is JobState.RUNNING:
        world.until(lambda: world.state(bad) is JobState.RUNNING)
    with world.database.write() as session:
        session.execute(update(Job).where(Job.id == bad).values(spec={"name": "bad", "colour": "blue"}))
    world.reconciler = world.new_controller()
    world.until(lambda: world.state(good).is_terminal and world.state(bad).is_terminal and world.is_clean())
    assert world.state(good) is JobState.SUCCEEDED
    assert (world.state(bad), world.job(bad).reason) == (JobState.FAILED, Reason.USER_ERROR.value)
    assert "colour" in world.job(bad).message


def test_a_controller_that_lost_the_lease_acts_no_more(world: World) -> None:
    old = world.reconciler
    job_id = world.submit(spec())
    world.reconciler = world.new_controller()
    _expect_leadership_lost(old)
    assert world.cluster.history == {}
    assert world.state(job_id) is JobState.QUEUED
    world.until(lambda: world.state(job_id) is JobState.SUCCEEDED and world.is_clean())
    world.check_history()


def test_a_supervisor_that_heard_of_a_newer_leader_ends_the_older_ones_rule(world: World) -> None:
    job_id = world.submit(spec())
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    world.cluster.only_gang().newest_token = 1000
    _expect_leadership_lost(world.reconciler)


def test_a_leader_deposed_in_mid_act_starts_nothing(world: World) -> None:
    """The lease goes to another after the placement was stored and before its start."""
    job_id = world.submit(spec())
    world.until(lambda: bool(world.placements(job_id)))
    old, world.reconciler = world.reconciler, world.new_controller()
    _expect_leadership_lost(old)
    world.until(lambda: world.state(job_id) is JobState.SUCCEEDED and world.is_clean())
    world.check_history()


def _expect_leadership_lost(reconciler: Reconciler) -> None:
    """In the round that finds out or in the next one."""
    try:
        reconciler.round()
    except LeadershipLostError:
        return
    with pytest.raises(LeadershipLostError):
        reconciler.round()


def test_a_long_queue_is_read_and_answered_over_several_rounds(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "SPECS_A_ROUND", 40)
    world = World(database, FakeCluster(1, 1, 1))
    with database.write() as session:
        ids = [jobs.insert(session, spec(f"j{i}", ranks=2), now=world.now).job.id for i in range(130)]
    answered = []
    while not answered or answered[-1] < len(ids):
        assert len(answered) < 60
        world.round()
        answered.append(sum(row[2] == "never-fits" for row in world.job_states()))
    assert max(after - before for before, after in zip([0, *answered], answered, strict=False)) == 40


def test_node_seen_no_more_is_kept_as_dead(world: World) -> None:
    world.round()
    del world.cluster.nodes["l1n1"]
    world.until(lambda: not _node_alive(world, "l1n1"), rounds=40)
    assert _node_alive(world, "l0n0")


def _node_alive(world: World, name: str) -> bool:
    with world.database.read() as session:
        return next(row.alive for row in nodes.every(session) if row.name == name)


def test_phases_are_states(world: World) -> None:
    job_id = world.submit(spec(steps=100))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    gang = world.cluster.only_gang()
    for phase, state in ((GangPhase.RECOVERING, JobState.RECOVERING), (GangPhase.RUNNING, JobState.RUNNING)):
        gang.phase = phase
        world.round()
        assert world.state(job_id) is state
