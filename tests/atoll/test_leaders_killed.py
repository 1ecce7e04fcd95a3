"""Three controllers in processes of their own on PostgreSQL, with clocks hours apart: one leads, and neither its death
nor the database's does harm. The cluster is one in memory that outlives them all.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, text

from api.app import create_app
from orchestrator.lifecycle.states import JobState
from orchestrator.settings import Settings
from orchestrator.store import events, jobs, leases, placements
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from orchestrator.store.tables import Job
from tests import postgresql_server
from tests.atoll.served_cluster import served
from tests.orchestrator.lifecycle.fake_cluster import FakeCluster
from tests.orchestrator.lifecycle.world import check_history, spec
from tests.postgresql_server import PostgresqlServer

PROGRAM = Path(__file__).parent / "controller_process.py"
REPOSITORY = Path(__file__).parents[2]
HOUR_S = 3600.0
KILLS = 20
LEASE_S = 2.0
PATIENCE_S = 120.0


def eventually(condition: Callable[[], bool], what: str, explain: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}\n{explain()}"
        time.sleep(0.02)


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """Its own: it is crashed, and keeps what was committed."""
    try:
        started = postgresql_server.start(keeps_commits=True)
    except postgresql_server.PostgresqlMissingError as missing:
        pytest.skip(str(missing))
    try:
        yield started
    finally:
        started.stop()


@dataclass
class Plane:
    """Controllers by process id, the database they share, and the cluster."""

    server: PostgresqlServer
    database: Database
    cluster: FakeCluster
    cluster_port: int
    folder: Path
    controllers: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)

    def start_controller(self, *, clock_ahead_s: float = 0.0) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "ATOLL_DATABASE_URL": self.server.url("atoll"),
            "ATOLL_STATE_DIRECTORY": str(self.folder),
        }
        with (self.folder / "controllers.log").open("ab") as log:
            arguments = [str(self.cluster_port), str(clock_ahead_s), str(LEASE_S)]
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *arguments], env=environment, stdout=log, stderr=log
            )
        self.controllers[process.pid] = process

    def lease(self) -> leases.LeaseState | None:
        with self.database.read() as session:
            return leases.current(session)

    def leader(self) -> int | None:
        """Process id of the controller that leads and has reached the cluster."""
        lease = self.lease()
        if lease is None or lease.holder is None or lease.cluster_reachable is not True:
            return None
        pid = int(lease.holder.rpartition("/")[2])
        return pid if pid in self.controllers else None

    def kill_leader(self) -> None:
        pid = self.leader()
        assert pid is not None
        self.controllers[pid].kill()
        self.controllers.pop(pid).wait()

    def submit(self, *, steps: int = 3) -> str:
        with self.database.write() as session:
            job = jobs.insert(session, spec(f"j{len(self.submitted)}", steps=steps), now=self.database.now())
        self.submitted.append(job.job.id)
        return job.job.id

    def state(self, job_id: str) -> JobState:
        with self.database.read() as session:
            return JobState(jobs.get(session, job_id).state)

    def check_all_ran_once(self) -> None:
        """Every job succeeded in its first placement, was never anywhere twice, and SQL has all that was said of it."""
        for job_id in self.submitted:
            eventually(lambda job_id=job_id: self.state(job_id).is_terminal, f"{job_id} ends", self.explain)
        eventually(lambda: not self.cluster.gangs and not self.held(), "all slots are given back")
        with self.database.read() as session:
            ended = [jobs.get(session, job_id) for job_id in self.submitted]
        assert {(job.state, job.incarnation) for job in ended} == {("succeeded", 1)}
        assert len(self.cluster.history) == len(self.submitted)
        check_history(self.database, self.cluster)

    def held(self) -> bool:
        with self.database.read() as session:
            return bool(placements.unreleased_keys(session))

    def log(self) -> str:
        return (self.folder / "controllers.log").read_text()[-5000:]

    def explain(self) -> str:
        """For a test that fails: who lives, who leads, what every job and every connection waits for."""
        alive = [pid for pid, process in self.controllers.items() if process.poll() is None]
        with self.database.read() as session:
            states = [(job.name, job.state, job.reason, job.message) for job in session.scalars(select(Job))]
            asked = "select pid, state, wait_event, query from pg_stat_activity where datname = 'atoll'"
            sessions = [tuple(row) for row in session.execute(text(asked))]
        lines = [f"controllers alive: {alive} of {list(self.controllers)}", f"{self.lease()}"]
        return "\n".join([*lines, *map(str, states), *map(str, sessions), self.log()])


@pytest.fixture
def plane(server: PostgresqlServer, tmp_path: Path) -> Iterator[Plane]:
    url = server.create_database("atoll")
    upgrade(url)
    database, cluster = open_database(url), FakeCluster()
    with served(cluster) as port:
        made = Plane(server, database, cluster, port, tmp_path)
        try:
            yield made
        finally:
            for process in made.controllers.values():
                process.kill()
                process.wait()
            database.close()


def test_clocks_hours_apart_neither_move_the_lease_nor_keep_it(plane: Plane) -> None:
    """By its own clock the second would find every lease run out, and the third none ever."""
    plane.start_controller()
    eventually(lambda: plane.leader() is not None, "the first leads", plane.explain)
    first = plane.leader()
    plane.start_controller(clock_ahead_s=HOUR_S)
    plane.start_controller(clock_ahead_s=-HOUR_S)
    eventually(lambda: plane.log().count("waiting-for-lease") == 2, "the others wait")
    plane.submit(steps=30)  # longer than a lease
    plane.check_all_ran_once()
    assert plane.leader() == first
    lease = plane.lease()
    assert lease is not None
    assert lease.token == 1
    for _ in range(2):  # whichever is next, and then the last: hours ahead the one, behind the other
        plane.kill_leader()
        began_s = time.monotonic()
        eventually(lambda: plane.leader() is not None, "another leads", plane.explain)
        assert time.monotonic() - began_s < 60.0 < HOUR_S
        plane.submit()
        plane.check_all_ran_once()
    with plane.database.read() as session:
        told = [
            event.at
            for job_id in plane.submitted
            for event in events.after(session, job_id, limit=1000)
            if event.seq is None  # by a controller, not by the supervisor of the cluster in memory
        ]
    assert told == sorted(told), "three leaders, one clock"
    assert (told[-1] - told[0]).total_seconds() < HOUR_S / 2


@pytest.mark.slow  # in every run: two kills above, and lifecycle/test_crash_at_every_line.py
@pytest.mark.timeout(900)
def test_leaders_killed_in_mid_decision(plane: Plane) -> None:
    dice = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}")
    for _ in range(3):
        plane.start_controller()
    tokens = []
    for _ in range(KILLS):
        eventually(lambda: plane.leader() is not None, "one leads", plane.explain)
        lease = plane.lease()
        assert lease is not None
        tokens.append(lease.token)
        for _ in range(3):
            plane.submit()
        time.sleep(dice.uniform(0.0, 1.0))  # no condition to wait for: the moment is to be any
        plane.kill_leader()
        plane.start_controller()
    plane.check_all_ran_once()
    assert tokens == sorted(set(tokens)), "every leader has a newer token than the one before"


@pytest.mark.parametrize("outage_s", [1.0, pytest.param(30.0, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_the_database_away_and_back(plane: Plane, outage_s: float) -> None:
    """Jobs train on meanwhile and end; the API says what is wrong; afterwards everything is on record, once."""
    settings = Settings(database_url=plane.server.url("atoll"), internal_token="internal")
    for _ in range(2):
        plane.start_controller()
    app = create_app(settings)
    with TestClient(app, base_url="http://127.0.0.1") as api:
        running, ending = plane.submit(steps=400 if outage_s > 10 else 60), plane.submit(steps=12)
        eventually(
            lambda: all(plane.state(one) is JobState.RUNNING for one in (running, ending)),
            "both run",
            plane.explain,
        )
        assert api.get("/readyz").status_code == 200
        plane.server.crash()
        moved = max(gang.step for gang in plane.cluster.history.values())
        time.sleep(outage_s)
        assert max(gang.step for gang in plane.cluster.history.values()) > moved
        answer = api.get(f"/api/v1/jobs/{running}")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json()["detail"].startswith("The database does not answer; jobs keep running")
        assert (api.get("/readyz").status_code, api.get("/healthz").status_code) == (503, 200)
        plane.server.start()
        eventually(lambda: api.get("/readyz").status_code == 200, "the API is ready again")
        assert api.post("/api/v1/jobs", json={"name": "after", "training": {"steps": 2}}).status_code == 201
        plane.submitted.append(api.get("/api/v1/jobs").json()["items"][0]["id"])
        plane.check_all_ran_once()
    assert [process.poll() for process in plane.controllers.values()] == [None, None], (
        "no controller died of it"
    )
