"""A controller's life in tests: rounds on a fake clock, deaths and restarts, and what must hold at the end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from orchestrator.lifecycle.ports import GangRef
from orchestrator.lifecycle.reconciler import Reconciler
from orchestrator.lifecycle.states import JobState
from orchestrator.queue.policy import QueuePolicy
from orchestrator.spec.job import JobSpec
from orchestrator.store import events, jobs, leases, metrics, placements
from orchestrator.store.engine import Database
from orchestrator.store.tables import Event, Job, Placement
from tests.orchestrator.lifecycle.fake_cluster import (
    CrashAt,
    FakeCluster,
    FakeCrash,
    FakeDyingDatabase,
    FakeInlineExecutor,
    FakeLauncher,
)

ROUND_S = 0.25


def spec(name: str = "job", *, ranks: int = 2, steps: int = 2, **sections: Any) -> JobSpec:
    """A data-parallel job that fits anywhere."""
    return JobSpec.model_validate(
        {"name": name, "parallelism": {"dp": ranks}, "training": {"steps": steps}, **sections}
    )


class World:
    def __init__(
        self,
        database: Database,
        cluster: FakeCluster | None = None,
        crash: CrashAt | None = None,
        policy: QueuePolicy | None = None,
    ) -> None:
        self.policy = policy
        self.database = database
        self.cluster = cluster or FakeCluster()
        self.crash = crash or CrashAt()
        self.launcher = FakeLauncher(self.cluster, self.crash)
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        self.deaths = 0
        self.reconciler = self.new_controller()

    def clock(self) -> datetime:
        return self.now

    def clock_s(self) -> float:
        return self.now.timestamp()

    def new_controller(self) -> Reconciler:
        with self.database.write() as session:
            token = leases.acquire(
                session,
                f"controller-{self.deaths}",
                now=self.now,
                ttl=timedelta(seconds=10),
                endpoint=None,
                is_dead=lambda holder: True,
            )
        assert token is not None
        return Reconciler(
            FakeDyingDatabase(self.database, self.crash),
            self.launcher,
            token=token,
            storage_directory=Path("/storage"),
            executor=FakeInlineExecutor(),
            clock=self.clock,
            clock_s=self.clock_s,
            policy=self.policy,
        )

    def submit(self, wanted: JobSpec) -> str:
        with self.database.write() as session:
            return jobs.insert(session, wanted, now=self.now).job.id

    def cancel(self, job_id: str) -> None:
        with self.database.write() as session:
            jobs.request_cancel(session, job_id, now=self.now)

    def round(self) -> None:
        """One round of the controller (which may die in it and is then replaced), then one move of the cluster."""
        try:
            self.reconciler.round()
        except FakeCrash:
            self.deaths += 1
            self.reconciler = self.new_controller()
        self.cluster.tick()
        self.now += timedelta(seconds=ROUND_S)

    def until(self, condition: Callable[[], bool], *, rounds: int = 400) -> None:
        for _ in range(rounds):
            if condition():
                return
            self.round()
        raise AssertionError(f"not reached in {rounds} rounds: {self.job_states()}")

    def job(self, job_id: str) -> Job:
        with self.database.read() as session:
            return jobs.get(session, job_id)

    def state(self, job_id: str) -> JobState:
        return JobState(self.job(job_id).state)

    def job_states(self) -> list[tuple[str, str, str, str]]:
        with self.database.read() as session:
            return [(row.name, row.state, row.reason, row.message) for row in session.scalars(select(Job))]

    def events(self, job_id: str) -> list[Event]:
        with self.database.read() as session:
            return list(events.after(session, job_id, limit=100_000))

    def kinds(self, job_id: str) -> list[str]:
        return [event.kind for event in self.events(job_id)]

    def placements(self, job_id: str) -> list[Placement]:
        with self.database.read() as session:
            query = select(Placement).where(Placement.job_id == job_id).order_by(Placement.incarnation)
            return list(session.scalars(query))

    def is_clean(self) -> bool:
        with self.database.read() as session:
            return not self.cluster.gangs and not placements.unreleased_keys(session)

    def check_history(self, *, drained_to_the_end: bool = True) -> None:
        check_history(self.database, self.cluster, drained_to_the_end=drained_to_the_end)


def check_history(database: Database, cluster: FakeCluster, *, drained_to_the_end: bool = True) -> None:
    """Nothing lost, nothing doubled: SQL holds exactly what every supervisor ever said, once and in order."""
    assert cluster.double_booked == []
    with database.read() as session:
        for job in session.scalars(select(Job)):
            rows = events.after(session, job.id, limit=100_000)
            assert [row.id for row in rows] == list(range(1, job.last_event_id + 1))
            points = metrics.after(session, job.id, limit=100_000)
            assert [point.id for point in points] == list(range(1, job.last_metric_id + 1))
            kinds = [row.kind for row in rows if row.seq is None]
            assert kinds.count("submitted") == 1
            assert kinds.count("placed") == job.incarnation
            for incarnation in range(1, job.incarnation + 1):
                gang = cluster.history.get(GangRef(job.id, incarnation))
                said = [(e.seq, e.kind.value, e.message) for e in gang.events] if gang else []
                kept = [(r.seq, r.kind, r.message) for r in rows if r.incarnation == incarnation]
                trained = [(s.seq, s.step) for s in gang.steps] if gang else []
                stored = [(p.seq, p.step) for p in points if p.incarnation == incarnation]
                if drained_to_the_end:
                    assert kept == said
                    assert stored == trained
                else:
                    assert kept == said[: len(kept)]
                    assert stored == trained[: len(stored)]
