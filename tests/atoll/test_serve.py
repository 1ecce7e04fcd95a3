"""`atoll serve --local` alive: what dies is started again, a kill leaves the cluster, a clean stop leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from actors.local_cluster import living
from actors.processes import alive, signal_quietly
from atoll.client import AtollClient
from atoll.demo import marked
from atoll.errors import ServerUnreachableError
from tests.atoll.conftest import SETTINGS, wait_for

MARKER = "ATOLL_TEST_OF_SERVE"
DEADLINE_S = 400.0


@dataclass
class Serving:
    """One `atoll serve` and what it says."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, self.log.read_text("utf-8", "replace"))

    def url(self) -> str:
        return wait_for("it is ready", lambda: self.said(r"Atoll is ready: (\S+)"), deadline_s=DEADLINE_S)[1]


@dataclass
class Starter:
    state: Path

    @property
    def marker(self) -> str:
        return f"{MARKER}={self.state}"

    def start(self, name: str) -> Serving:
        log = self.state.parent / f"{name}.log"
        kept = {key: value for key, value in os.environ.items() if key not in SETTINGS}
        flags = ["--local", "1x1x1", "--port", "0", "--state-directory", str(self.state)]
        process = subprocess.Popen(
            [sys.executable, "-m", "atoll", "serve", *flags],
            env={**kept, MARKER: str(self.state), "COLUMNS": "400"},
            stdout=log.open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        return Serving(process, log)

    def named(self, words: str) -> list[int]:
        """Processes of this test whose command line has these words."""
        return [pid for pid in marked(self.marker) if words in command_line(pid)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    made = Starter(tmp_path / "state")
    yield made
    for pid in marked(made.marker):
        signal_quietly(pid, signal.SIGKILL)


def slots(url: str) -> int:
    try:
        with AtollClient(url) as client:
            return client.cluster().free_slots
    except ServerUnreachableError:
        return 0


@pytest.mark.timeout(900)
def test_a_control_plane_from_start_to_stop(starter: Starter) -> None:
    first = starter.start("first")
    url = first.url()
    wait_for("the slot is seen", lambda: slots(url) == 1, deadline_s=DEADLINE_S)
    cluster = living(starter.state)
    assert cluster is not None

    (controller,) = starter.named("-m atoll.controller")
    os.kill(controller, signal.SIGKILL)
    wait_for("it says so", lambda: first.said(r"controller ended \(SIGKILL\); starting it again"))
    wait_for("another controller", lambda: starter.named("-m atoll.controller") not in ([], [controller]))
    (api,) = starter.named("-m api")
    os.kill(api, signal.SIGKILL)
    wait_for("the API is back", lambda: starter.named("-m api") not in ([], [api]))
    wait_for("the API answers again", lambda: slots(url) == 1, deadline_s=DEADLINE_S)

    second = starter.start("second")
    assert second.process.wait(120) == 2
    assert second.said(rf"process {first.process.pid}")

    first.process.kill()
    first.process.wait()
    gone = lambda: not starter.named("-m api") and not starter.named("-m atoll.controller")  # noqa: E731
    wait_for("API and controller die with it", gone)
    assert alive(cluster.pid), "the local cluster must outlive a killed `atoll serve`"

    third = starter.start("third")
    url = third.url()
    wait_for("the slot is seen again", lambda: slots(url) == 1, deadline_s=DEADLINE_S)
    assert living(starter.state) == cluster
    third.process.terminate()
    assert third.process.wait(120) == 0
    wait_for("nothing is left", lambda: not marked(starter.marker))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demo_without_a_terminal(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "atoll", "demo"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for told in (
        "Web UI: http://127.0.0.1:",
        "Killing rank",
        "rank-died",
        "repaired",
        "succeeded",
        "unigram model",
    ):
        assert told in ran.stdout
    assert "\x1b[" not in ran.stdout
