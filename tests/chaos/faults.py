"""The faults themselves: each strikes real processes, files or links, and says what it struck."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from actors.checkpoint.layout import newest_first
from actors.processes import alive, signal_quietly
from tests.chaos import links
from tests.chaos.cast import Cast
from tests.chaos.scenario import Fault, Kind
from tests.chaos.site import Site
from tests.chaos.witness import Witness

DUTY_S = 0.08
"""A slowed rank stands still for this long, and runs for as long."""


class NothingToStrikeError(Exception):
    """The victim is not there (yet)."""


class NotPossibleError(Exception):
    """This machine or user cannot do that."""


@dataclass
class Stage:
    """Where faults strike: the job that runs and what is undone later."""

    site: Site
    witness: Witness
    checkpoints: Path
    corrupted: list[str] = field(default_factory=list)
    """Names of checkpoints with a changed byte."""
    undo: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    """(monotonic seconds, what is put back then)."""

    def later(self, after_s: float, what: Callable[[], None]) -> None:
        self.undo.append((time.monotonic() + after_s, what))

    def put_back(self, *, everything: bool = False) -> None:
        due = [one for one in self.undo if everything or one[0] <= time.monotonic()]
        for one in due:
            self.undo.remove(one)
            one[1]()

    def rank(self, victim: int, cast: Cast) -> int:
        """The process of a rank: the one that trained last as such, or before anybody trained any of them."""
        pid = self.witness.pid(victim)
        if pid is not None and alive(pid):
            return pid
        return _one(cast.ranks, victim)


def strike(stage: Stage, fault: Fault) -> str:
    """Does it; a few words on what was struck. NothingToStrikeError, NotPossibleError."""
    return _ACTIONS[fault.kind](stage, fault)


def _one(pids: list[int], victim: int) -> int:
    if not pids:
        raise NothingToStrikeError
    return pids[victim % len(pids)]


def _signal(number: signal.Signals, part: str) -> Callable[[Stage, Fault], str]:
    def act(stage: Stage, fault: Fault) -> str:
        cast = stage.site.cast()
        others = getattr(cast, f"{part}s")
        pid = stage.rank(fault.victim, cast) if part == "rank" else _one(others, fault.victim)
        signal_quietly(pid, number)
        if number is signal.SIGSTOP and fault.for_s is not None:
            stage.later(fault.for_s, lambda: signal_quietly(pid, signal.SIGCONT))
        return f"{number.name} to {part} process {pid}"

    return act


def _slow_rank(stage: Stage, fault: Fault) -> str:
    pid = stage.rank(fault.victim, stage.site.cast())
    ends = time.monotonic() + (fault.for_s or 0.0)

    def alternate() -> None:
        while time.monotonic() < ends and alive(pid):
            signal_quietly(pid, signal.SIGSTOP)
            time.sleep(DUTY_S)
            signal_quietly(pid, signal.SIGCONT)
            time.sleep(DUTY_S)

    threading.Thread(target=alternate, daemon=True).start()
    return f"process {pid} runs half of the time"


def _kill_raylet(stage: Stage, fault: Fault) -> str:
    """Of a node of the job, where it has one already."""
    site = stage.site
    cluster = site.cluster()
    if cluster is None:
        raise NothingToStrikeError
    node = site.node_of(_one(site.cast().agents, fault.victim))
    if node is None or not alive(cluster.raylets[node]):
        raise NothingToStrikeError
    os.kill(cluster.raylets[node], signal.SIGKILL)
    return f"SIGKILL to the raylet of {node}"


def _kill_control_plane(stage: Stage, fault: Fault) -> str:
    stage.site.kill()
    stage.later(1.0, lambda: None if stage.site.serves else stage.site.start())
    return "SIGKILL to atoll serve, started again after 1 s"


def _database_outage(stage: Stage, fault: Fault) -> str:
    """Nobody can write: another connection holds the lock."""
    assert fault.for_s is not None
    holder = sqlite3.connect(stage.site.folder / "atoll.db", isolation_level=None, timeout=10.0)
    holder.execute("BEGIN EXCLUSIVE")

    def release() -> None:
        holder.execute("ROLLBACK")
        holder.close()

    stage.later(fault.for_s, release)
    return f"SQLite locked for {fault.for_s:g} s"


def _disk_full(stage: Stage, fault: Fault) -> str:
    assert fault.for_s is not None
    disk = stage.site.disk
    if not disk.is_mount():
        raise NotPossibleError("a small disk needs root")
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    stage.later(fault.for_s, lambda: ballast.unlink(missing_ok=True))
    return f"the disk of the checkpoints is full for {fault.for_s:g} s"


def _link(stage: Stage, fault: Fault) -> str:
    if not stage.site.own_network:
        raise NotPossibleError("links need a network namespace of their own")
    pid = stage.rank(fault.victim, stage.site.cast())
    ports = links.ports_of(pid)
    if not ports:
        raise NothingToStrikeError
    if fault.kind is Kind.RESET_LINK:
        links.reset(ports)
    else:
        undo = links.shape(ports, cut=fault.kind is Kind.CUT_LINK)
        stage.later(fault.for_s or 0.0, undo)
    return f"{len(ports)} ports of process {pid}"


def _corrupt_shard(stage: Stage, fault: Fault) -> str:
    """Flips a bit in the middle of the largest file of the newest checkpoint."""
    names = (
        newest_first(path.name for path in stage.checkpoints.iterdir()) if stage.checkpoints.exists() else []
    )
    if not names:
        raise NothingToStrikeError
    largest = max((stage.checkpoints / names[0]).iterdir(), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(largest.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    stage.corrupted.append(names[0])
    return f"a bit of {names[0]}/{largest.name}"


_ACTIONS: dict[Kind, Callable[[Stage, Fault], str]] = {
    Kind.KILL_RANK: _signal(signal.SIGKILL, "rank"),
    Kind.ABORT_RANK: _signal(signal.SIGABRT, "rank"),
    Kind.STOP_RANK: _signal(signal.SIGSTOP, "rank"),
    Kind.SLOW_RANK: _slow_rank,
    Kind.KILL_AGENT: _signal(signal.SIGKILL, "agent"),
    Kind.ABORT_AGENT: _signal(signal.SIGABRT, "agent"),
    Kind.STOP_AGENT: _signal(signal.SIGSTOP, "agent"),
    Kind.KILL_SUPERVISOR: _signal(signal.SIGKILL, "supervisor"),
    Kind.ABORT_SUPERVISOR: _signal(signal.SIGABRT, "supervisor"),
    Kind.STOP_SUPERVISOR: _signal(signal.SIGSTOP, "supervisor"),
    Kind.KILL_RAYLET: _kill_raylet,
    Kind.KILL_HEAD: _signal(signal.SIGKILL, "head"),
    Kind.KILL_CONTROLLER: _signal(signal.SIGKILL, "controller"),
    Kind.KILL_API: _signal(signal.SIGKILL, "api"),
    Kind.KILL_CONTROL_PLANE: _kill_control_plane,
    Kind.DATABASE_OUTAGE: _database_outage,
    Kind.DISK_FULL: _disk_full,
    Kind.SLOW_LINK: _link,
    Kind.CUT_LINK: _link,
    Kind.RESET_LINK: _link,
    Kind.CORRUPT_SHARD: _corrupt_shard,
}
