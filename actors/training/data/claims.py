"""Who works on what, in a directory that several nodes see: claim files with leases.

A claim only saves work done twice. What is claimed must be a function of its name, written aside and renamed, so that
two who do it at once, after a lease was misjudged, do no harm.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from actors.processes import alive

LEASE_S = 30.0
RENEWALS = 6
"""Renewals in the time of a lease."""


class Claims:
    """The claims of one participant. Its claims are renewed until `close`, or until the process dies."""

    def __init__(
        self, directory: Path, *, lease_s: float = LEASE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._lease_s = lease_s
        self._clock = clock
        self._owner = f"{_machine()} {os.getpid()} {uuid.uuid4().hex}"
        self._mine: set[Path] = set()
        self._seen: dict[Path, tuple[tuple[str, int], float]] = {}
        """What another's claim looked like, and since when: clocks of two machines are never compared."""
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name="claims", daemon=True)
        self._renewer.start()

    def take(self, name: str) -> bool:
        """Whether `name` is this participant's now: nobody's before, or of someone who died or stopped renewing."""
        path = self._directory / f"{name}.claim"
        if self._create(path):
            return True
        if not self._is_stale(path):
            return False
        # Of two who find it stale, the second may move the first one's new claim away: work done twice, no more.
        aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return False
        aside.unlink(missing_ok=True)
        return self._create(path)

    def release(self, name: str) -> None:
        path = self._directory / f"{name}.claim"
        with self._lock:
            self._mine.discard(path)
        if _read(path)[0] == self._owner:
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Stops renewing and gives up what is held."""
        self._closed.set()
        self._renewer.join()
        for path in list(self._mine):
            self.release(path.name.removesuffix(".claim"))

    def _create(self, path: Path) -> bool:
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "w") as stream:
            stream.write(self._owner)
        with self._lock:
            self._mine.add(path)
        return True

    def _is_stale(self, path: Path) -> bool:
        looks = _read(path)
        machine, _, rest = looks[0].partition(" ")
        pid = rest.partition(" ")[0]
        if machine == _machine() and pid.isdecimal() and not alive(int(pid)):
            return True
        before, since = self._seen.get(path, (None, 0.0))
        if before != looks:
            self._seen[path] = (looks, self._clock())
            return False
        return self._clock() - since > self._lease_s

    def _renew(self) -> None:
        while not self._closed.wait(self._lease_s / RENEWALS):
            with self._lock:
                mine = list(self._mine)
            for path in mine:
                try:
                    os.utime(path)
                except OSError:
                    continue


def _read(path: Path) -> tuple[str, int]:
    """(owner, time of the last renewal)."""
    try:
        return path.read_text(), path.stat().st_mtime_ns
    except OSError:
        return "", 0


def _machine() -> str:
    """Where process ids mean the same: one boot of one machine, one namespace of processes."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()}:{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
