"""The head of the Ray cluster killed under a real control plane and two real jobs: back with its state, back without
it, and gone for good with a new cluster in its place. One of the jobs ends while the head is away.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from actors import processes
from actors.janitor import marked
from actors.local_cluster import MARKER, living
from atoll.preflight import free_port
from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState
from orchestrator.spec.job import JobSpec
from orchestrator.store import events, jobs, placements
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from orchestrator.store.tables import Event, Job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parent / "headed_cluster.py"
REPOSITORY = Path(__file__).parents[2]
SHORT_STEPS = 300
LONG_STEPS = 100_000
"""More than any test waits for: the job is cancelled in the end."""
CHECKPOINT_EVERY = 50
PATIENCE_S = 600.0


def eventually(condition: Callable[[], Any], what: str, explain: Callable[[], str]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}\n{explain()}"
        time.sleep(0.1)
    return found


def spec(name: str, steps: int) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": name,
            "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64},
            "training": {"steps": steps, "global_batch": 2, "sequence_length": 32, "eval_sequences": 8},
            "checkpoint": {"every": CHECKPOINT_EVERY},
        }
    )


@dataclass
class Plane:
    """`atoll serve`, the database it writes, and two jobs of one rank each."""

    folder: Path
    database: Database
    process: subprocess.Popen[bytes] | None = None
    jobs: dict[str, str] = field(default_factory=dict)

    def start(self, *flags: str) -> None:
        arguments = ["--state-directory", str(self.folder), "--port", str(free_port("127.0.0.1"))]
        with (self.folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "atoll", "serve", *flags, *arguments],
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE_S)

    def submit(self, name: str, steps: int) -> None:
        with self.database.write() as session:
            self.jobs[name] = jobs.insert(session, spec(name, steps), now=datetime.now(UTC)).job.id

    def cancel(self, name: str) -> None:
        with self.database.write() as session:
            jobs.request_cancel(session, self.jobs[name], now=datetime.now(UTC))

    def job(self, name: str) -> Job:
        with self.database.read() as session:
            return jobs.get(session, self.jobs[name])

    def events(self, name: str, kind: EventKind) -> list[Event]:
        with self.database.read() as session:
            found = events.after(session, self.jobs[name], limit=100_000)
        return [event for event in found if event.kind == kind.value]

    def pid(self, name: str) -> int:
        """Process of the rank of the newest placement; 0 before it is known."""
        with self.database.read() as session:
            placed = placements.newest(session, self.jobs[name])
        return placed.ranks[0]["pid"] if placed is not None and placed.ranks else 0

    def is_over(self, name: str, state: JobState) -> bool:
        assert not JobState(self.job(name).state).is_terminal or self.job(name).state == state.value, (
            self.explain()
        )
        return self.job(name).state == state.value

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        return eventually(condition, what, self.explain)

    def explain(self) -> str:
        rows = [(job.name, job.state, job.reason, job.message, job.step) for job in map(self.job, self.jobs)]
        return f"{rows}\n{(self.folder / 'serve.log').read_text()[-4000:]}"

    def both_train(self) -> None:
        """Submits the two and waits until each has saved a checkpoint (the short one is far from its end then)."""
        for name, steps in (("short", SHORT_STEPS), ("long", LONG_STEPS)):
            self.submit(name, steps)
        self.until(lambda: self.job("long").step > CHECKPOINT_EVERY and self.pid("short"), "both train")

    def short_has_ended(self) -> bool:
        """Whether its last checkpoint is committed and its process gone: what the head is not needed for."""
        folder = self.folder / "jobs" / self.jobs["short"] / "checkpoints"
        return (folder / f"step-{SHORT_STEPS:08d}").is_dir() and not processes.alive(self.pid("short"))

    def end(self) -> None:
        """Cancels what is left; every slot is given back and no rank lives."""
        self.cancel("long")
        self.until(lambda: self.is_over("long", JobState.CANCELLED), "the long job is cancelled")
        self.until(lambda: not self.held(), "all slots are given back")
        assert not any(processes.alive(self.pid(name)) for name in self.jobs)

    def held(self) -> bool:
        with self.database.read() as session:
            return bool(placements.unreleased_keys(session))


@pytest.fixture
def plane() -> Iterator[Plane]:
    folder = Path(tempfile.mkdtemp(prefix="h6-", dir="/tmp"))  # short: socket paths end at 107 bytes
    url = f"sqlite:///{folder / 'atoll.db'}"
    upgrade(url)
    made = Plane(folder, open_database(url))
    try:
        yield made
    finally:
        made.stop()
        made.database.close()
        shutil.rmtree(folder, ignore_errors=True)


class Head:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.address = self.hear()["address"]

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def do(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self.hear()


@contextmanager
def headed(folder: Path, environment: Mapping[str, str]) -> Iterator[Head]:
    with (folder / "cluster.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Head(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


@contextmanager
def state_in_rocksdb(folder: Path) -> Iterator[Mapping[str, str]]:
    (folder / "gcs").mkdir()
    yield {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(folder / "gcs")}


@contextmanager
def state_in_redis(folder: Path) -> Iterator[Mapping[str, str]]:
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on the PATH (Debian: apt-get install redis-server)")
    port = free_port("127.0.0.1")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        eventually(lambda: answers(port), "Redis answers", lambda: (folder / "redis.log").read_text())
        yield {"RAY_REDIS_ADDRESS": f"127.0.0.1:{port}", "RAY_external_storage_namespace": "test"}
    finally:
        server.kill()
        server.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("storage", [state_in_rocksdb, state_in_redis], ids=["rocksdb", "redis"])
def test_back_with_its_state_nothing_was_interrupted(plane: Plane, storage: Any) -> None:
    with storage(plane.folder) as environment, headed(plane.folder, environment) as head:
        plane.start("--ray-address", head.address)
        plane.both_train()
        pid = plane.pid("long")
        head.do("kill")
        plane.until(plane.short_has_ended, "the short job's rank ended while the head was away")
        head.do("back")
        plane.until(lambda: plane.is_over("short", JobState.SUCCEEDED), "its success is on record")
        plane.submit("after", CHECKPOINT_EVERY)
        plane.until(lambda: plane.is_over("after", JobState.SUCCEEDED), "the head places jobs again")
        assert (plane.pid("long"), plane.job("long").incarnation, plane.job("long").restarts) == (pid, 1, 0)
        assert (plane.job("short").incarnation, plane.job("short").step) == (1, SHORT_STEPS)
        for name in ("short", "long"):
            assert len(plane.events(name, EventKind.ATTEMPT_STARTED)) == 1
        assert len(plane.events("short", EventKind.FINISHED)) == 1
        plane.end()


def head_back_without_its_state(plane: Plane, head: Head) -> None:
    head.do("anew")  # its answer says that the new head is up
    head.hear()  # the old nodes have ended, new ones of the same names are there


def test_row_30_back_without_its_state_jobs_go_on_from_their_checkpoints(plane: Plane) -> None:
    with headed(plane.folder, {}) as head:
        plane.start("--ray-address", head.address)
        recovered(plane, lambda: head_back_without_its_state(plane, head))


def test_row_30_gone_for_good_jobs_go_on_in_a_new_cluster(plane: Plane) -> None:
    """The cluster of `atoll serve --local` ends with its head, and another one takes its place."""
    plane.start("--local", "1x2x1")

    def lose_the_head() -> None:
        cluster = living(plane.folder)
        assert cluster is not None
        raylet = Path(f"/proc/{cluster.raylets['l0n0']}/environ").read_bytes().split(b"\0")
        marker = next(entry for entry in raylet if entry.startswith(MARKER.encode())).decode()
        (gcs,) = (p for p in marked(marker, Path(marker.partition("=")[2])) if is_gcs(p))
        os.kill(gcs, signal.SIGKILL)

    recovered(plane, lose_the_head)


def is_gcs(pid: int) -> bool:
    return "gcs_server" in Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]


def recovered(plane: Plane, disaster: Callable[[], None]) -> None:
    """The controller is stopped, so that it cannot have heard of the short job's end; then the disaster comes. What
    Ray does to the controller, which is a driver of the cluster that was, is for `atoll serve` to mend."""
    plane.both_train()
    pids = {name: plane.pid(name) for name in plane.jobs}
    controller = plane.until(lambda: controllers(plane), "the controller is found")[0]
    os.kill(controller, signal.SIGSTOP)
    plane.until(plane.short_has_ended, "the short job's rank ended unheard")
    assert plane.job("short").state == "running"
    disaster()
    os.kill(controller, signal.SIGCONT)
    plane.until(lambda: plane.is_over("short", JobState.SUCCEEDED), "the short job's success is on record")
    assert (plane.job("short").step, len(plane.events("short", EventKind.EVALUATED))) == (SHORT_STEPS, 1)
    (resumed,) = plane.events("short", EventKind.RESUMED)
    assert resumed.data["step"] == SHORT_STEPS, "nothing was left to train"

    plane.until(lambda: plane.events("long", EventKind.RESUMED), "the long job goes on from a checkpoint")
    assert plane.events("long", EventKind.RESUMED)[0].data["step"] >= CHECKPOINT_EVERY
    assert plane.job("long").incarnation == 2
    assert not any(processes.alive(pid) for pid in pids.values()), "no rank of before runs beside it"
    step = plane.job("long").step
    plane.until(lambda: plane.job("long").step > step + CHECKPOINT_EVERY, "it trains on")
    plane.end()


def controllers(plane: Plane) -> list[int]:
    """Controllers that the plane's `atoll serve` keeps alive."""
    assert plane.process is not None
    found = []
    for task in Path(f"/proc/{plane.process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if b"atoll.controller" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found
