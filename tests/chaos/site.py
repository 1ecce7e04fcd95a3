"""A real control plane with a real local cluster, kept from run to run and made whole between them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actors.local_cluster import MARKER as CLUSTER_MARKER
from actors.local_cluster import LocalCluster, Shape, living
from actors.processes import alive, die_with_parent, signal_quietly
from atoll.client import AtollClient
from atoll.errors import AtollError
from atoll.preflight import free_port
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from tests.chaos.cast import Cast, marked, parent, variable

SHAPE = Shape(2, 2, 1)
"""Four nodes of one slot: every rank has an agent and a node of its own."""
SLOTS = SHAPE.leaves * SHAPE.nodes * SHAPE.slots
MARKER = "ATOLL_CHAOS"
"""In the environment of everything that the site starts."""
PATIENCE_S = 120.0
DISK_BYTES = 64 << 20
REPOSITORY = Path(__file__).resolve().parents[2]


class SiteError(RuntimeError):
    """The site cannot be made whole: of no use for further runs."""


def until(
    what: str, condition: Callable[[], Any], patience_s: float = PATIENCE_S, every_s: float = 0.1
) -> Any:
    """The first true value of `condition`. SiteError, with `what`, when there is none in time."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        if time.monotonic() >= deadline:
            raise SiteError(f"not within {patience_s:.0f} s: {what}")
        time.sleep(every_s)
    return found


class Site:
    def __init__(self, folder: Path, own_network: bool) -> None:
        self.folder = folder
        self.own_network = own_network
        self.disk = folder / "jobs"
        self.url = f"sqlite:///{folder / 'atoll.db'}"
        upgrade(self.url)
        self.database: Database = open_database(self.url)
        self.port = free_port("127.0.0.1")
        self.client = AtollClient(f"http://127.0.0.1:{self.port}", retry_budget_s=30.0)
        self._server: subprocess.Popen[bytes] | None = None
        self._eye: subprocess.Popen[str] | None = None
        self._eye_of = ""
        self._cluster_folders: set[str] = set()

    # The control plane

    def start(self) -> None:
        """Starts `atoll serve`, which joins the cluster where one lives."""
        own = os.getpid()
        flags = ["--local", str(SHAPE), "--state-directory", str(self.folder), "--port", str(self.port)]
        flags += ["--storage-directory", str(self.disk)]
        with (self.folder / "serve.log").open("ab") as log:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "atoll", "serve", *flags],
                env={**os.environ, MARKER: str(self.folder)},
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(own, signal.SIGTERM),
            )

    def kill(self) -> None:
        """SIGKILL to `atoll serve`; its children go with it, the cluster stays."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    @property
    def serves(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def restart(self) -> None:
        """Another `atoll serve`: it has forgotten how often its children died, and starts them without delay."""
        if self.serves:
            self.kill()
        self.start()

    def stop(self) -> None:
        """Ends everything."""
        if self._eye is not None:
            self._eye.kill()
        if not self.serves:
            self.start()  # a clean stop ends the cluster, too
            time.sleep(2.0)
        assert self._server is not None
        self._server.terminate()
        try:
            self._server.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
        for pid in self.titles():
            signal_quietly(pid, signal.SIGKILL)
        self.client.close()
        self.database.close()

    def log(self) -> str:
        return (self.folder / "serve.log").read_text(errors="replace")[-4000:]

    # The cluster

    def cluster(self) -> LocalCluster | None:
        found = living(self.folder)
        if found is not None:
            told = [variable(pid, CLUSTER_MARKER) for pid in found.raylets.values()]
            self._cluster_folders.update(folder for folder in told if folder)
        return found

    def whole(self) -> bool:
        """Whether every node of the cluster lives."""
        cluster = self.cluster()
        return cluster is not None and all(alive(pid) for pid in cluster.raylets.values())

    def make_whole(self) -> None:
        """Until the control plane answers and all slots are free, on another cluster if this one lost nodes."""
        if not self.serves:
            self.start()
        cluster = self.cluster()
        if cluster is not None and not self.whole():
            signal_quietly(cluster.pid, signal.SIGTERM)  # `atoll serve` starts another one
            until("the cluster with dead nodes has ended", lambda: not alive(cluster.pid))
        until(f"{SLOTS} slots are free\n{self.log()}", self.all_free)

    def all_free(self) -> bool:
        try:
            cluster = self.client.cluster()
        except AtollError:
            return False
        return self.whole() and cluster.free_slots == SLOTS

    def titles(self) -> dict[int, str]:
        """Processes of the site, those of clusters that are gone included."""
        self.cluster()
        return marked(MARKER, str(self.folder), self._cluster_folders)

    def cast(self) -> Cast:
        return Cast.of(self.titles())

    def node_of(self, pid: int) -> str | None:
        """The node whose raylet started the process or one it descends from."""
        cluster = self.cluster()
        by_pid = {raylet: node for node, raylet in cluster.raylets.items()} if cluster else {}
        while pid > 1 and pid not in by_pid:
            pid = parent(pid)
        return by_pid.get(pid)

    def ray(self) -> dict[str, Any]:
        """What Ray says (`ray_eye.py`): asked through a process of its own, since a driver dies with its head."""
        cluster = self.cluster()
        if cluster is None:
            raise SiteError("there is no cluster to ask")
        if self._eye is None or self._eye.poll() is not None or self._eye_of != cluster.address:
            if self._eye is not None:
                self._eye.kill()
            self._eye_of = cluster.address
            self._eye = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.ray_eye", cluster.address],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.folder / "eye.log").open("ab"),
                text=True,
            )
        assert self._eye.stdin is not None
        assert self._eye.stdout is not None
        self._eye.stdin.write("\n")
        self._eye.stdin.flush()
        answer = self._eye.stdout.readline()
        if not answer:
            raise SiteError(f"Ray gave no answer: {(self.folder / 'eye.log').read_text()[-1000:]}")
        found: dict[str, Any] = json.loads(answer)
        return found


@contextmanager
def site(*, own_network: bool) -> Iterator[Site]:
    """A site whose disk is small, where we may mount one. Its folder is short: Ray makes sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="ch-", dir="/tmp"))
    disk = folder / "jobs"
    disk.mkdir()
    mounted = False
    if os.geteuid() == 0:
        options = f"size={DISK_BYTES}"
        mounted = not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "atoll-chaos", str(disk)]
        ).returncode
    here = Site(folder, own_network)
    try:
        here.start()
        yield here
    finally:
        here.stop()
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
