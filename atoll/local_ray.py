"""The local Ray cluster of `atoll serve --local`: joined when one lives in the state directory, started otherwise.

It is a process of its own that outlives a killed `atoll serve`, and with it the running jobs; a clean stop ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from actors.local_cluster import LocalCluster, Shape, living
from actors.processes import alive, signal_quietly
from atoll.children import merged
from atoll.errors import AtollError, ServerUnreachableError

START_PATIENCE_S = 600.0
"""On a busy machine a raylet may die while it starts; the holder then begins anew, some times."""
END_PATIENCE_S = 30.0
LOG = "local-cluster.log"


class ShapeMismatchError(AtollError):
    """The living cluster is not of the shape that was asked for."""


class LocalRay:
    def __init__(self, shape: Shape, state_directory: Path, stop: threading.Event) -> None:
        self._shape = shape
        self._directory = state_directory
        self._stop = stop

    def ensure(self) -> LocalCluster:
        """The living cluster, started when there is none. ServerUnreachableError when it does not come up."""
        there = living(self._directory)
        if there is None:
            return self._start()
        if there.shape != str(self._shape):
            raise ShapeMismatchError(
                f"a local cluster of shape {there.shape} (process {there.pid}) lives in {self._directory}: give "
                f"--local {there.shape} to join it, or end it with `kill {there.pid}`"
            )
        return there

    def is_alive(self, known: LocalCluster) -> bool:
        return alive(known.pid)

    def end(self) -> None:
        """Ends the cluster whole; a holder that does not end in time is killed, and its janitor does the rest."""
        there = living(self._directory)
        if there is None:
            return
        signal_quietly(there.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_PATIENCE_S
        while alive(there.pid):
            if time.monotonic() > deadline:
                signal_quietly(there.pid, signal.SIGKILL)
                return
            time.sleep(0.05)

    def _arguments(self) -> list[str]:
        return ["--shape", str(self._shape), "--state-directory", str(self._directory)]

    def _start(self) -> LocalCluster:
        log = self._directory / LOG
        with log.open("ab") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "actors.local_cluster", *self._arguments()],
                env=merged(os.environ, {"RAY_ADDRESS": None}),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_PATIENCE_S
        while not self._stop.is_set() and time.monotonic() < deadline:
            there = living(self._directory)
            if there is not None:
                return there
            if process.poll() is not None:
                raise ServerUnreachableError(
                    f"the local Ray cluster did not start; {log} ends with: {tail(log)}"
                )
            time.sleep(0.1)
        process.terminate()
        try:
            process.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise ServerUnreachableError(
            f"the local Ray cluster was not ready after {START_PATIENCE_S:.0f} s; {log} ends with: {tail(log)}"
        )


def tail(path: Path, lines: int = 3) -> str:
    return " / ".join(path.read_text("utf-8", "replace").strip().splitlines()[-lines:])
