"""A Ray cluster on the emulated network: one raylet a namespace, the head on the spine."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from actors import janitor
from benchmarks.fabric.network import HEAD, Host, Network

ROOT = Path(__file__).resolve().parents[2]
MARKER = "ATOLL_EMULATED_CLUSTER"
"""In the environment of every process of the cluster: what it is ended by."""
START_S = 150.0
START_TRIES = 3


class StartError(RuntimeError):
    """A node did not start."""


@dataclass
class Cluster:
    """Started on entering; on leaving every process of it is ended and its directory removed."""

    network: Network
    slots: int
    """Of each node."""
    address: str = ""
    directory: Path = field(default_factory=Path)
    _holders: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Cluster:
        self.directory = Path(tempfile.mkdtemp(prefix="atollnet-", dir="/tmp"))  # socket paths are short
        self._watch = janitor.start(self._marker, self.directory)
        try:
            self.address = self._start(HEAD)
            for host in self.network.wiring.hosts():
                self._start(host)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        janitor.sweep(self._marker, self.directory)
        for holder in self._holders:
            holder.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        self._watch.release()

    @property
    def environment(self) -> dict[str, str]:
        """Of the cluster's processes and of drivers on its hosts."""
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        return {
            **os.environ,
            MARKER: str(self.directory),
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "RAY_TMPDIR": str(self.directory),
            "TMPDIR": str(self.directory),
            "OMP_NUM_THREADS": "1",
        }

    @property
    def _marker(self) -> str:
        return f"{MARKER}={self.directory}"

    def _start(self, host: Host) -> str:
        """Address of the cluster, once the node is part of it; on a busy machine a start may need another try."""
        given = {"ip": host.address, "leaf": host.leaf, "slots": self.slots, "address": self.address or None}
        command = [sys.executable, "-m", "benchmarks.fabric.host", host.name, json.dumps(given)]
        log = self.directory / f"{host.name}.log"
        for _ in range(START_TRIES):
            with log.open("a") as errors:
                holder = subprocess.Popen(
                    self.network.inside(host.name, command),
                    env=self.environment,
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
            self._holders.append(holder)
            if line := _line(holder, START_S):
                return str(json.loads(line)["address"])
            holder.kill()
        raise StartError(f"{host.name} did not start: {log.read_text()[-2000:]}")


def _line(process: subprocess.Popen[str], deadline_s: float) -> str:
    """The line of JSON that `process` prints; empty when it ends or is late."""
    assert process.stdout is not None
    deadline = time.monotonic() + deadline_s
    while (left := deadline - time.monotonic()) > 0 and select.select([process.stdout], [], [], left)[0]:
        line = process.stdout.readline()
        if not line or line.startswith("{"):
            return line
    return ""
