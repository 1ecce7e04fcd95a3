"""The whole control plane killed with SIGKILL at random moments while a real job trains on a real cluster.

Training goes on meanwhile, and in the end SQL has all of it, once and in order.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actors import journal, processes
from atoll.preflight import free_port
from orchestrator.lifecycle.states import JobState
from orchestrator.lifecycle.timeline import TIMELINES_KEPT
from orchestrator.spec.job import JobSpec
from orchestrator.store import events, jobs, leases, metrics, placements, timelines
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from tests.open_files import processes_with_files_below

KILLS = 10
KILLS_AT_START = 3
"""These may come before the first step, the others come while it trains."""
STEPS_A_KILL = 600
"""Longer than a life of the control plane, whose start takes seconds; a step of this model takes some 20 ms."""
LONGEST_LIFE_S = 3.0
"""A controller that leads is killed after a random part of this."""
PATIENCE_S = 600.0
"""The start of a local Ray cluster takes minutes on a very busy machine."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because Ray makes sockets below it: their paths have 107 bytes at most."""
    path = Path(tempfile.mkdtemp(prefix="a6-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


class ControlPlane:
    """`atoll serve` on a local cluster, which outlives it."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.database = database
        self.port = free_port("127.0.0.1")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until its controller leads and has reached the cluster."""
        before = self._token()
        arguments = [
            "serve",
            "--local",
            "1x2x1",
            "--state-directory",
            str(self.folder),
            "--port",
            str(self.port),
        ]
        with (self.folder / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "atoll", *arguments], stdout=log, stderr=log
            )

        def leads() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log()
            with self.database.read() as session:
                lease = leases.current(session)
            return lease is not None and lease.token > before and lease.cluster_reachable is True

        eventually(leads, self.log)

    def _token(self) -> int:
        with self.database.read() as session:
            lease = leases.current(session)
        return 0 if lease is None else lease.token

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """A clean stop ends the local cluster too."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)

    def log(self) -> str:
        return (self.folder / "serve.log").read_text()[-5000:]


def eventually(condition: Callable[[], bool], explain: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s\n{explain()}"
        time.sleep(0.05)


@pytest.mark.slow  # in every run: lifecycle/test_crash_at_every_line.py, on a fake cluster
@pytest.mark.timeout(1800)
def test_row_32_killed_again_and_again_the_job_succeeds_and_its_history_is_whole(folder: Path) -> None:
    steps = KILLS * STEPS_A_KILL
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    url = f"sqlite:///{folder / 'atoll.db'}"
    upgrade(url)
    database = open_database(url)
    control_plane = ControlPlane(folder, database)
    try:
        control_plane.start()
        with database.write() as session:
            job_id = jobs.insert(session, spec(steps), now=datetime.now(UTC)).job.id

        def state() -> JobState:
            with database.read() as session:
                return JobState(jobs.get(session, job_id).state)

        def trains() -> bool:
            with database.read() as session:
                return jobs.get(session, job_id).step > 0

        for kill in range(KILLS):
            if kill == KILLS_AT_START:
                eventually(trains, control_plane.log)
            time.sleep(dice.uniform(0.0, LONGEST_LIFE_S))
            assert not state().is_terminal, (
                f"ended before kill {kill}: the job is too short\n{control_plane.log()}"
            )
            control_plane.kill()
            control_plane.start()
        rank_pids: set[int] = set()

        def ended() -> bool:
            with database.read() as session:
                placement = placements.newest(session, job_id)
            rank_pids.update(facts["pid"] for facts in (placement.ranks if placement else []))
            return state().is_terminal

        deadline = time.monotonic() + 1000.0
        while not ended():
            assert time.monotonic() < deadline, control_plane.log()
            time.sleep(0.2)

        def released() -> bool:
            with database.read() as session:
                return not placements.unreleased_keys(session)

        eventually(released, control_plane.log)
        check_history(database, job_id, steps)
        assert len(rank_pids) >= 2
        assert [pid for pid in rank_pids if processes.alive(pid)] == []
        control_plane.stop()
        assert processes_with_files_below(folder / "jobs") == []
    finally:
        if control_plane.process is not None:
            control_plane.stop()
        database.close()


def spec(steps: int) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "survivor",
            "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64},
            "parallelism": {"dp": 2},
            "training": {"steps": steps, "global_batch": 4, "sequence_length": 32, "eval_sequences": 8},
            "checkpoint": {"every": 500},
        }
    )


def check_history(database: Database, job_id: str, steps: int) -> None:
    with database.read() as session:
        job = jobs.get(session, job_id)
        history = events.after(session, job_id, limit=100_000)
        points = metrics.after(session, job_id, limit=1_000_000)
        schedules = timelines.of_job(session, job_id)
    assert (job.state, job.step, job.incarnation) == ("succeeded", steps, 1), job.message
    assert [event.id for event in history] == list(range(1, len(history) + 1))
    assert [point.id for point in points] == list(range(1, len(points) + 1))
    said = [event.seq for event in history if event.incarnation == 1]
    # Timelines go to a table of their own; of those that waited for a control plane the newest are kept.
    missing = sorted(set(range(1, said[-1] + 1)) - set(said))
    assert said == sorted(set(said))
    assert min(len(missing), journal.TIMELINES_KEPT) <= len(schedules) <= min(len(missing), TIMELINES_KEPT)
    assert schedules
    assert [point.seq for point in points] == list(range(1, len(points) + 1))
    assert [point.step for point in points] == list(range(1, steps + 1))
    kinds = [event.kind for event in history]
    for once in ("submitted", "placed", "supervisor-started", "attempt-started", "certified", "finished"):
        assert kinds.count(once) == 1, once
