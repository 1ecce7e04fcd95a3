"""Ends every process that carries a marker in its environment, even when the one who started them was killed.

A janitor is a process of its own session that waits for the end of a pipe whose other end only its starter holds.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from actors import processes

RAY_TITLE = b"ray::"
ROUNDS = 200
PAUSE_S = 0.05


def marked(marker: str, directory: Path) -> list[int]:
    """Ids of processes with the entry `marker` (`NAME=value`) in their environment, and of Ray's with a file open below
    `directory`: those write their title over their environment. A driver has such files open too, and is spared.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        if _carries(entry, marker.encode(), f"{directory}/") and processes.alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def _carries(entry: Path, marker: bytes, below: str) -> bool:
    try:
        if marker in (entry / "environ").read_bytes().split(b"\0"):
            return True
        if not (entry / "cmdline").read_bytes().startswith(RAY_TITLE):
            return False
        return any(str(link.readlink()).startswith(below) for link in (entry / "fd").iterdir())
    except OSError:
        return False  # gone meanwhile, or another user's


def sweep(marker: str, directory: Path) -> list[int]:
    """SIGKILL to everything marked until nothing is left; returns what still lives after ROUNDS x PAUSE_S."""
    left: list[int] = []
    for _ in range(ROUNDS):
        left = marked(marker, directory)
        if not left:
            return []
        for pid in left:
            processes.signal_quietly(pid, signal.SIGKILL)
        reap_children()
        time.sleep(PAUSE_S)
    return left


def reap_children() -> None:
    """Takes the exit codes of all children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


@dataclass(frozen=True, slots=True)
class Watch:
    """The starter's end of a janitor."""

    pid: int
    pipe: int

    def release(self) -> None:
        """Lets the janitor end (it finds nothing left to do)."""
        os.close(self.pipe)


def start(marker: str, directory: Path) -> Watch:
    """A janitor for `marker` that also removes `directory`. Forks: call while the process has one thread.

    Neither starter nor janitor is found by a sweep: the entry is put into the environment of their children alone.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid:
        os.close(reading)
        return Watch(pid, writing)
    # Nothing of the starter's stays open here: not its end of the pipe, and no lock that says that it lives.
    os.closerange(3, reading)
    os.closerange(reading + 1, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        os.read(reading, 1)  # returns empty when the last holder of the other end is gone
        sweep(marker, directory)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os._exit(0)
