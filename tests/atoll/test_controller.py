"""The controller process: leading, giving way, ending."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog

from atoll import controller
from atoll.controller import ExitCode, configure_logs, run_controller
from orchestrator.lifecycle.leadership import identity, is_surely_dead
from orchestrator.lifecycle.ports import ClusterUnreachableError, Launcher
from orchestrator.lifecycle.states import JobState
from orchestrator.queue.policy import InvalidPolicyError
from orchestrator.settings import Settings
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import Tier
from orchestrator.store import jobs, leases, nodes
from orchestrator.store.engine import Database
from tests.orchestrator.lifecycle.fake_cluster import FakeCluster, FakeLauncher

PATIENCE_S = 120.0


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "not reached in time"
        time.sleep(0.02)


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings(database_url=database_url, state_directory=tmp_path, internal_token="internal")


@contextmanager
def running(
    settings: Settings, factory: Callable[[Settings], Launcher]
) -> Iterator[tuple[threading.Event, list[ExitCode]]]:
    stop = threading.Event()
    codes: list[ExitCode] = []
    thread = threading.Thread(target=lambda: codes.append(run_controller(settings, factory, stop)))
    thread.start()
    try:
        yield stop, codes
    finally:
        stop.set()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@contextmanager
def ticking(cluster: FakeCluster) -> Iterator[None]:
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.02):
            cluster.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def lease(database: Database) -> leases.LeaseState | None:
    with database.read() as session:
        return leases.current(session)


def leads(database: Database, token: int) -> bool:
    found = lease(database)
    return found is not None and found.token == token and found.cluster_reachable is True


def submit(database: Database, name: str) -> str:
    spec = JobSpec.model_validate({"name": name, "parallelism": {"dp": 2}, "training": {"steps": 3}})
    with database.write() as session:
        return jobs.insert(session, spec, now=datetime.now(UTC)).job.id


def state(database: Database, job_id: str) -> JobState:
    with database.read() as session:
        return JobState(jobs.get(session, job_id).state)


def test_jobs_run_and_a_stop_gives_the_lease_back(settings: Settings, database: Database) -> None:
    cluster = FakeCluster()
    with ticking(cluster), running(settings, lambda _: FakeLauncher(cluster)) as (stop, codes):
        job_ids = [submit(database, f"j{i}") for i in range(3)]
        eventually(lambda: all(state(database, job_id) is JobState.SUCCEEDED for job_id in job_ids))
        eventually(lambda: not cluster.gangs)
        found = lease(database)
        assert found is not None
        assert found.endpoint is not None
        assert found.endpoint.startswith("http://127.0.0.1:")
        stop.set()
    assert codes == [ExitCode.STOPPED]
    found = lease(database)
    assert found is not None
    assert (found.holder, found.endpoint) == (None, None)
    assert cluster.double_booked == []


def test_a_second_controller_waits_and_takes_over(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RETRY_S", 0.05)
    names = iter(("first", "second"))
    monkeypatch.setattr(controller, "identity", lambda: next(names))
    cluster = FakeCluster()

    def factory(_: Settings) -> Launcher:
        return FakeLauncher(cluster)

    with ticking(cluster), running(settings, factory) as (stop_first, _):
        eventually(lambda: leads(database, 1))
        with running(settings, factory):
            job_id = submit(database, "one")
            eventually(lambda: state(database, job_id) is JobState.SUCCEEDED)
            assert leads(database, 1)
            stop_first.set()
            eventually(lambda: leads(database, 2))
            job_id = submit(database, "two")
            eventually(lambda: state(database, job_id) is JobState.SUCCEEDED)
    assert cluster.double_booked == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_cluster_that_is_not_there_yet_is_waited_for(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RETRY_S", 0.05)
    cluster, there = FakeCluster(), threading.Event()

    def factory(_: Settings) -> Launcher:
        if not there.is_set():
            raise ClusterUnreachableError("nothing listens at 127.0.0.1:1")
        return FakeLauncher(cluster)

    job_id = submit(database, "early")
    with ticking(cluster), running(settings, factory):

        def shown() -> bool:
            found = lease(database)
            return (
                found is not None
                and found.cluster_reachable is False
                and "127.0.0.1:1" in found.cluster_message
            )

        eventually(shown)
        there.set()
        eventually(lambda: state(database, job_id) is JobState.SUCCEEDED)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_lost_cluster_ends_the_process(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "GIVE_UP_S", 1.0)
    cluster = FakeCluster()
    with running(settings, lambda _: FakeLauncher(cluster)) as (_, codes):
        eventually(lambda: leads(database, 1))
        cluster.unreachable = True
        eventually(lambda: codes == [ExitCode.CLUSTER_LOST])
    found = lease(database)
    assert found is not None
    assert found.holder is None


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_fabric_file_completes_and_corrects_what_ray_reports(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text(
        "nodes:\n- {name: l0n0, leaf: elsewhere}\n- {name: l1n0, spine: s1}\n- {name: absent, accelerators: 8}\n"
    )
    declared = settings.model_copy(update={"fabric_file": str(file)})
    with running(declared, lambda _: FakeLauncher(FakeCluster())):
        eventually(lambda: leads(database, 1))
        found = lease(database)
        assert found is not None
        assert found.cluster_message == "node l0n0: leaf elsewhere declared, l0 reported; elsewhere counts"

        def fabric_stored() -> bool:
            with database.read() as session:
                return len(nodes.known_fabric(session).nodes) == 5

        eventually(fabric_stored)
    with database.read() as session:
        fabric = nodes.known_fabric(session)
    by_name = {node.name: node for node in fabric.nodes}
    assert by_name["l0n0"].domains[Tier.LEAF] == "elsewhere"
    assert by_name["l1n0"].domains == {Tier.ISLAND: "l1n0", Tier.LEAF: "l1", Tier.SPINE: "s1"}
    assert not by_name["absent"].alive


def test_a_fabric_file_that_cannot_be_taken_ends_the_process_at_once(tmp_path: Path) -> None:
    file = tmp_path / "fabric.yaml"
    file.write_text("nodes:\n- {name: n0, lefa: l0}\n")
    environment = {**os.environ, "ATOLL_FABRIC_FILE": str(file), "ATOLL_STATE_DIRECTORY": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "atoll.controller"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == ExitCode.USAGE
    assert "lefa" in done.stderr
    assert not list(tmp_path.glob("*.db"))


def test_a_queue_policy_that_cannot_be_taken_ends_the_run_at_once(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "queue.yaml").write_text("reservation: 2\n")
    wrong = settings.model_copy(update={"queue_policy_file": tmp_path / "queue.yaml"})
    with pytest.raises(InvalidPolicyError, match="reservation: is not a known key"):
        run_controller(wrong, lambda _: FakeLauncher(FakeCluster()), threading.Event())


def test_a_process_knows_whether_a_holder_is_dead() -> None:
    assert not is_surely_dead(identity())
    program = "from orchestrator.lifecycle.leadership import identity; print(identity(), flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    name = other.stdout.readline().strip()
    assert not is_surely_dead(name)
    other.kill()
    eventually(lambda: is_surely_dead(name))  # a zombie already
    other.communicate()
    assert is_surely_dead(name)
    host, namespace, pid, started = identity().rsplit("/", 3)
    assert int(pid) == os.getpid()
    assert is_surely_dead(f"{host}/{namespace}/{pid}/{int(started) + 1}")  # the pid was given to another
    assert not is_surely_dead(f"elsewhere/{namespace}/1/1")
    assert not is_surely_dead(f"{host}/another/1/1")
    assert not is_surely_dead("nonsense")


@pytest.mark.parametrize("as_json", [False, True])
def test_a_logged_error_shows_no_variables(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A driver's frames hold the password of the database."""

    def connect(password: str) -> None:
        raise ConnectionError(f"refused after {len(password)} characters")

    before = structlog.get_config()
    try:
        configure_logs(as_json)
        try:
            connect("".join(["hunter", "2"]))
        except ConnectionError:
            structlog.get_logger().exception("act-failed")
    finally:
        structlog.configure(**before)
    told = capsys.readouterr().err
    assert "ConnectionError: refused after 7 characters" in told
    assert "hunter2" not in told
