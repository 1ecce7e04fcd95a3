"""A zygote without Ray: it forks with one thread, says how each rank ends, and takes its ranks with it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from actors import processes
from actors.messages import Lines, encode
from actors.zygote import LossyFile

pytestmark = pytest.mark.timeout(900)
PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Zygote:
    process: subprocess.Popen[bytes]
    channel: socket.socket
    directory: Path
    waiting: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lines = Lines(self.channel)

    def hear(self, what: str) -> dict[str, Any]:
        """The next message of a kind."""
        while True:
            for message in self.waiting:
                if message["is"] == what:
                    self.waiting.remove(message)
                    return message
            self.waiting += self.lines.receive()
            assert not self.lines.ended, f"the zygote ended before it said {what!r}"

    def fork(self, program: str, attempt: int = 1, log: Path | None = None) -> int:
        """One rank; its process id."""
        shared = {
            "agent": str(self.directory / "agent.sock"),
            "attempt": attempt,
            "incarnation": 1,
            "node": "n0",
            "ray_node": f"test-{os.getpid()}",
            "labels": {"host": "n0"},
            "world_size": 1,
            "program": program,
            "spec": {"name": "one", "training": {"steps": 1}},
            "job_directory": str(self.directory),
            "rendezvous": ["127.0.0.1", 1],
            "timeout_s": 10.0,
            "threads": 1,
            "extras": {},
        }
        own = {
            "rank": 0,
            "index": 1,
            "log": str(log or self.log(attempt)),
            "environment": {"CUDA_VISIBLE_DEVICES": "1"},
            "pulse": str(self.directory / "rank.pulse"),
        }
        self.lines.send({"do": "fork", "shared": shared, "ranks": [own]})
        return int(self.hear("forked")["pid"])

    def log(self, attempt: int = 1) -> Path:
        return self.directory / f"rank-{attempt}.log"


@pytest.fixture
def zygote(tmp_path: Path) -> Iterator[Zygote]:
    ours, theirs = socket.socketpair()
    ours.settimeout(600)
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "actors.zygote", "actors.training.loop:train", str(os.getpid())],
        stdin=theirs,
        env=environment,
    )
    theirs.close()
    yield Zygote(process, ours, tmp_path)
    process.kill()
    process.wait()
    ours.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that ranks say hello on."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "agent.sock"))
    listener.listen()
    listener.settimeout(600)
    yield listener
    listener.close()


def test_everything_is_imported_with_one_thread_and_a_failing_rank_is_told(zygote: Zygote) -> None:
    assert zygote.hear("warm")["threads"] == 1
    zygote.fork("sleeper_program:run")  # nobody listens on the agent's socket
    assert zygote.hear("exited") == {"is": "exited", "attempt": 1, "rank": 0, "code": 1}
    assert "FileNotFoundError" in zygote.log().read_text()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("kill request", marks=pytest.mark.slow),
        "end of the channel",
        pytest.param("SIGTERM", marks=pytest.mark.slow),
        "SIGKILL",
    ],
)
def test_row_38_ranks_end_with_their_zygote(
    zygote: Zygote, agent: socket.socket, wait_for: Any, end: str
) -> None:
    rank = zygote.fork("sleeper_program:run")
    connection, _ = agent.accept()
    (hello,) = Lines(connection).receive()
    assert (hello["kind"], hello["data"]["index"], hello["data"]["pid"]) == ("hello", 1, rank)
    child = int(
        wait_for(lambda: re.search(r"child (\d+)", zygote.log().read_text()), "the rank has a child")[1]
    )
    assert os.getsid(rank) == rank
    assert processes.alive(rank)
    assert processes.alive(child)
    match end:
        case "kill request":
            zygote.lines.send({"do": "kill", "attempt": 1})
            assert zygote.hear("exited")["code"] == -signal.SIGKILL
        case "end of the channel":
            zygote.channel.shutdown(socket.SHUT_RDWR)
        case "SIGTERM":
            zygote.process.terminate()
        case "SIGKILL":
            zygote.process.kill()
    wait_for(lambda: not processes.alive(rank), "the rank has ended")
    if end == "SIGKILL":
        os.kill(child, signal.SIGKILL)  # the kernel's tie is between the zygote and its own children alone
    wait_for(lambda: not processes.alive(child), "what the rank started has ended")


@pytest.mark.parametrize("log", ["/dev/full", "{directory}/file/rank.log"], ids=["full disk", "no directory"])
def test_a_log_that_cannot_be_written_ends_no_rank(zygote: Zygote, agent: socket.socket, log: str) -> None:
    (zygote.directory / "file").touch()
    zygote.fork("sleeper_program:run", log=Path(log.format(directory=zygote.directory)))
    connection, _ = agent.accept()
    connection.settimeout(600)
    connection.sendall(encode({"is": "stop"}))
    lines = Lines(connection)
    heard: list[dict[str, Any]] = []
    while not lines.ended:
        heard += lines.receive()
    assert [message["kind"] for message in heard] == ["hello", "done"]
    assert zygote.hear("exited")["code"] == 0


def test_what_a_rank_prints_is_never_refused(tmp_path: Path) -> None:
    """Lone surrogates stand for the bytes of a file name that is no UTF-8 (PEP 383)."""
    with (tmp_path / "log").open("wb") as file, LossyFile.stream(file.fileno()) as stream:
        stream.write("pl\u00e4n \udcff.txt\n")
    assert (tmp_path / "log").read_bytes() == b"pl\xc3\xa4n \\udcff.txt\n"
    with Path("/dev/full").open("wb") as full, LossyFile.stream(full.fileno()) as stream:
        for _ in range(3):
            stream.write("x" * 100_000 + "\n")
