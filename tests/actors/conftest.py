"""One local Ray cluster for a test session, and gangs on it as a controller would drive them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from actors import processes
from actors.launcher import RayLauncher
from actors.local_cluster import LocalCluster, living
from orchestrator.lifecycle.ports import ClusterUnreachableError, GangRef
from orchestrator.lifecycle.reports import EventKind, GangEvent, GangOrder, GangReport, NoMove, StepRecord
from orchestrator.recovery.timeouts import BaseTimes
from orchestrator.topology.fabric import Slot
from tests.open_files import processes_with_files_below

PROGRAMS = Path(__file__).parent / "programs"
START_S = 600.0
WAIT_S = 600.0
"""Generous: a busy machine takes minutes for what an idle one does in seconds. Nothing waits longer than it has to."""
SHORT_LEASES = BaseTimes(watch_s=1.0, missed_watches=8)
"""An agent takes its supervisor for dead after 8 s."""


def wait_for(condition: Callable[[], Any], what: str, deadline_s: float = WAIT_S) -> Any:
    """The first true value of `condition`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    pytest.fail(f"not within {deadline_s:.0f} s: {what}")


def start_cluster(shape: str, directory: Path) -> subprocess.Popen[bytes]:
    """A holder process; the programs of the tests can be imported on its nodes."""
    paths = [str(PROGRAMS), os.environ.get("PYTHONPATH", "")]
    with (directory / "holder.log").open("wb") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "actors.local_cluster",
                "--shape",
                shape,
                "--state-directory",
                str(directory),
            ],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def await_cluster(holder: subprocess.Popen[bytes], directory: Path) -> LocalCluster:
    def ready() -> LocalCluster | None:
        assert holder.poll() is None, (directory / "holder.log").read_text()
        return living(directory)

    cluster: LocalCluster = wait_for(ready, "the local cluster is ready", START_S)
    return cluster


@contextmanager
def running_cluster(shape: str, directory: Path) -> Iterator[LocalCluster]:
    holder = start_cluster(shape, directory)
    try:
        yield await_cluster(holder, directory)
    finally:
        import ray

        ray.shutdown()  # a driver whose head is gone is aborted by Ray, the test report with it
        holder.send_signal(signal.SIGTERM)
        holder.wait(60)


@pytest.fixture(scope="session")
def local_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two leaves x two nodes x two slots; a living one in the directory ATOLL_TEST_CLUSTER is used as it is."""
    if there := os.environ.get("ATOLL_TEST_CLUSTER"):
        cluster = living(Path(there))
        assert cluster is not None, f"no local cluster lives in {there}"
        yield cluster
        return
    with running_cluster("2x2x2", tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def breakable_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Another one, whose raylets tests kill; one that was killed does not come back."""
    with running_cluster("2x2x2", tmp_path_factory.mktemp("breakable")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def connect() -> Callable[[LocalCluster], RayLauncher]:
    """A launcher of a cluster. A process drives one cluster at a time, so another one is connected to anew."""
    connected: list[tuple[str, RayLauncher]] = []

    def launcher_of(cluster: LocalCluster) -> RayLauncher:
        if not connected or connected[-1][0] != cluster.address:
            connected.append((cluster.address, RayLauncher(cluster.address, local=True, base=SHORT_LEASES)))
        return connected[-1][1]

    return launcher_of


@pytest.fixture
def launcher(local_cluster: LocalCluster, connect: Callable[[LocalCluster], RayLauncher]) -> RayLauncher:
    return connect(local_cluster)


def reaped(launcher: RayLauncher, gang: GangRef) -> bool:
    try:
        return launcher.reap(gang)
    except ClusterUnreachableError:
        return False


@dataclass
class Driver:
    """Drives one gang the way a controller does, and keeps what it was told."""

    launcher: RayLauncher
    directory: Path
    ref: GangRef
    token: int = 1
    events: list[GangEvent] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    reports: list[GangReport] = field(default_factory=list)

    def start(self, slots: Sequence[Slot], spec: Mapping[str, Any], **order: Any) -> None:
        fields = {
            "job_id": self.ref.job_id,
            "incarnation": self.ref.incarnation,
            "first_attempt": 1,
            "restarts_used": 0,
            "deaths_at_step": (0, 0),
            "spec": spec,
            "slots": tuple(slots),
            "fabric": self.launcher.fabric(),
            "job_directory": str(self.directory),
            "fencing_token": self.token,
        }
        self.launcher.start(GangOrder(**{**fields, **order}))

    def poll(self) -> GangReport:
        report = self.launcher.poll(
            self.ref,
            event_cursor=self.events[-1].seq if self.events else 0,
            step_cursor=self.steps[-1].seq if self.steps else 0,
            fencing_token=self.token,
        )
        self.events += report.events
        self.steps += report.steps
        self.reports.append(report)
        if report.lost_nodes:
            answer = NoMove(report.revision + 1, "this controller has no other node")
            self.launcher.move(self.ref, answer, fencing_token=self.token)
        return report

    def until(
        self, condition: Callable[[GangReport], Any], what: str, deadline_s: float = WAIT_S
    ) -> GangReport:
        """Polls until `condition` holds for a report; that report."""

        def look() -> GangReport | None:
            try:
                report = self.poll()
            except ClusterUnreachableError:
                return None  # a supervisor that still starts
            return report if condition(report) else None

        found: GangReport = wait_for(
            look, f"{what}; events: {[(e.kind.value, e.message) for e in self.events]}", deadline_s
        )
        return found

    def end(self) -> GangReport:
        return self.until(lambda report: report.outcome is not None, "the gang has ended")

    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]

    def event(self, kind: EventKind) -> GangEvent:
        return next(event for event in self.events if event.kind is kind)

    def rank_pids(self) -> set[int]:
        return {fact.pid for report in self.reports for fact in report.ranks}

    def assert_nothing_left(self) -> None:
        """No rank process that was ever reported lives, and reaping says that the slots are free."""
        wait_for(lambda: reaped(self.launcher, self.ref), "nothing is left of the gang")
        alive = [pid for pid in self.rank_pids() if processes.alive(pid)]
        assert alive == []
        assert self.ref not in self.launcher.gangs()

    def assert_all_free(self) -> None:
        """`assert_nothing_left`, and: no process has a file of the job open, Ray counts every slot as free."""
        assert self.rank_pids(), "no rank was ever seen: the test would prove nothing"
        self.assert_nothing_left()
        assert processes_with_files_below(self.directory) == []
        wait_for(slots_are_free, "all slots of the living nodes are free")


def slots_are_free() -> bool:
    """Whether each living node has its two slots free, by Ray's own account."""
    import ray
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()
    living = [node["NodeID"] for node in ray.nodes() if node["Alive"] and "host" in node["Labels"]]
    return bool(living) and all(free[node].get(f"gpu{index}") == 1.0 for node in living for index in (0, 1))


@pytest.fixture
def new_driver(tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """Makes drivers whose gangs are reaped at the end of the test."""
    made: list[Driver] = []

    def make(launcher: RayLauncher, *, job_id: str | None = None, incarnation: int = 1) -> Driver:
        job_id = job_id or f"job-{uuid.uuid4().hex[:12]}"
        directory = tmp_path / job_id
        directory.mkdir(exist_ok=True)
        made.append(Driver(launcher, directory, GangRef(job_id, incarnation)))
        return made[-1]

    yield make
    for one in made:
        wait_for(lambda one=one: reaped(one.launcher, one.ref), "the gang of the test is reaped")


@pytest.fixture
def driver(launcher: RayLauncher, new_driver: Callable[..., Driver]) -> Driver:
    return new_driver(launcher)


ALL_SLOTS = tuple(Slot(f"l{leaf}n{node}", index) for leaf in (0, 1) for node in (0, 1) for index in (0, 1))


@pytest.fixture
def all_slots() -> tuple[Slot, ...]:
    """Slot of each of the eight ranks: pairs of ranks on a node, four ranks under a leaf."""
    return ALL_SLOTS


@pytest.fixture(scope="session")
def clusters() -> Callable[[str, Path], AbstractContextManager[LocalCluster]]:
    """Makes a cluster of any shape, which ends with the context."""
    return running_cluster


@pytest.fixture
def cluster_starter() -> Callable[[str, Path], subprocess.Popen[bytes]]:
    return start_cluster


@pytest.fixture
def cluster_awaiter() -> Callable[[subprocess.Popen[bytes], Path], LocalCluster]:
    return await_cluster


@pytest.fixture
def leaf_slots() -> tuple[Slot, ...]:
    """Slot of each of four ranks under the leaf l1; the other leaf stays free."""
    return ALL_SLOTS[4:]


@pytest.fixture
def small_spec(toy_spec: dict[str, Any]) -> dict[str, Any]:
    """tp 2 x pp 2: four ranks."""
    return {**toy_spec, "parallelism": {"tp": 2, "pp": 2, "microbatches": 2}}


@pytest.fixture(name="wait_for", scope="session")
def wait_for_fixture() -> Callable[..., Any]:
    return wait_for


@pytest.fixture(name="slots_are_free", scope="session")
def slots_are_free_fixture() -> Callable[[], bool]:
    return slots_are_free


@pytest.fixture
def toy_spec() -> dict[str, Any]:
    """tp 2 x pp 2 x dp 2: eight ranks."""
    return {
        "name": "toy",
        "parallelism": {"tp": 2, "pp": 2, "dp": 2, "microbatches": 2},
        "training": {"steps": 5},
        "recovery": {"step_timeout_s": 30.0},
    }
