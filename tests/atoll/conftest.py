"""A real API process on an SQLite file that was filled through the store's repositories, and the CLI against it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest

from atoll.cli import main
from atoll.preflight import free_port
from orchestrator.lifecycle.reports import EventKind, LogTail, StepRecord
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.spec import parse_spec
from orchestrator.store import attempts, events, jobs, logs, metrics, nodes
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from orchestrator.topology.fabric import Fabric, Node

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = (
    "ATOLL_URL",
    "ATOLL_TOKEN",
    "ATOLL_TOKEN_FILE",
    "DATABASE_URL",
    "ATOLL_DATABASE_URL",
    "RAY_ADDRESS",
)
LOG_TEXT = "first line\nsecond line, with an é\n"
OFFLINE = ("simulate", "version")
"""Verbs that ask no server."""
T = TypeVar("T")
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell sets must not change a test."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


def wait_for(what: str, found: Callable[[], T | None], *, deadline_s: float = 60.0) -> T:
    """Polls until `found` gives something."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {deadline_s} s")


@dataclass
class Server:
    """An API process and its database."""

    url: str
    database: Database
    process: subprocess.Popen[bytes]

    def insert(self, name: str, state: JobState = JobState.QUEUED, reason: Reason = Reason.NO_ROOM) -> str:
        """A job in a state, through the repositories; its message is `reason` as a sentence."""
        document = {"name": name, "training": {"steps": 100}}
        with self.database.write() as session:
            job = jobs.insert(session, parse_spec(document), now=NOW).job
            message = f"because of {reason.value}"
            jobs.set_state(session, job.id, state, reason, message, now=NOW)
            return job.id


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    url = f"sqlite:///{folder / 'atoll.db'}"
    upgrade(url)
    process, address = started(folder, url)
    try:
        yield Server(address, open_database(url), process)
    finally:
        process.terminate()
        process.wait(30)


def started(folder: Path, database_url: str) -> tuple[subprocess.Popen[bytes], str]:
    """An API process that answers, and its address. Begins anew when its port was taken meanwhile."""
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    for _ in range(5):
        port = free_port("127.0.0.1")
        own = {"ATOLL_DATABASE_URL": database_url, "ATOLL_HOST": "127.0.0.1", "ATOLL_PORT": str(port)}
        process = subprocess.Popen(
            [sys.executable, "-m", "api"],
            env=kept | own,
            cwd=folder,
            stdout=(folder / "api.log").open("wb"),
            stderr=subprocess.STDOUT,
        )
        address = f"http://127.0.0.1:{port}"
        if answers_or_ends(address, process):
            return process, address
    raise AssertionError(f"the API does not start: {(folder / 'api.log').read_text()[-2000:]}")


def answers_or_ends(address: str, process: subprocess.Popen[bytes]) -> bool:
    wait_for("the API answers or ends", lambda: answers(address) or process.poll() is not None)
    return process.poll() is None


def answers(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/readyz", trust_env=False).status_code == 200
    except httpx2.TransportError:
        return False


@pytest.fixture(scope="module")
def finished(server: Server) -> str:
    """A job `finished` that succeeded, with steps, events, an evaluation and a kept log."""
    job_id = server.insert("finished", JobState.RUNNING, Reason.NONE)
    at = NOW.timestamp()
    with server.database.write() as session:
        attempts.start(session, job_id, 1, incarnation=1, at=NOW)
        records = [StepRecord(n, at, 1, n, 3.0 / n, 1.0, 1e-3, 2048, 0.5, 4096.0) for n in range(1, 4)]
        metrics.append(session, job_id, 1, records)
        evaluated = {"step": 100, "loss": 1.25, "unigram_loss": 3.5}
        events.append(session, job_id, EventKind.EVALUATED, "Held-back loss 1.25.", at=NOW, data=evaluated)
        logs.keep(session, job_id, [LogTail(1, 0, LOG_TEXT, len(LOG_TEXT.encode()))])
        jobs.summarise(session, job_id, {"step": 100, "loss": 1.5, "evaluation": evaluated})
        jobs.set_state(session, job_id, JobState.SUCCEEDED, Reason.COMPLETED, "", now=NOW)
    return job_id


@pytest.fixture(scope="module")
def cluster(server: Server) -> None:
    """One node with four slots, as the controller would have seen it."""
    with server.database.write() as session:
        nodes.observe(session, Fabric((Node("n0", 4),)), now=datetime.now(UTC))


@dataclass
class Ran:
    code: int
    out: str
    err: str


@pytest.fixture
def atoll(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[..., Ran]:
    """Runs the command line in this process; `--url` of the test's server is given unless the test gives one."""

    def run(*arguments: str) -> Ran:
        if "server" in request.fixturenames and "--url" not in arguments and arguments[0] not in OFFLINE:
            arguments = (*arguments, "--url", request.getfixturevalue("server").url)
        monkeypatch.setattr(sys, "argv", ["atoll", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Ran(code, captured.out, captured.err)

    return run
