"""A Ray cluster on this machine that stands for leaf switches x nodes x accelerators, one raylet a node.

    python -m actors.local_cluster --shape 2x2x2 --state-directory DIRECTORY

The process holds the cluster: SIGTERM or SIGINT ends everything it started, and so does the death of the head's GCS,
without which nothing answers any more; a janitor process ends everything when the holder itself is killed.
`DIRECTORY/local-cluster.json` says where the cluster is, once it is ready; the lock on
`DIRECTORY/local-cluster.lock` says that its holder lives.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors import janitor, ray_environment
from actors.processes import alive

if TYPE_CHECKING:
    from actors.local_nodes import LocalNodes

FILE = "local-cluster.json"
LOCK = "local-cluster.lock"
MARKER = "ATOLL_LOCAL_CLUSTER"
"""In the environment of every process of the cluster: what the janitor finds them by."""
RUNTIME_ENVIRONMENTS = "ATOLL_LOCAL_RUNTIME_ENVIRONMENTS"
"""1 in the environment: raylets can build Ray's runtime environments, which Ray Train asks for and Atoll does not."""
ADDRESS = "127.0.0.2"
"""Loopback, since a cluster without authentication runs whatever anybody sends who reaches it. Not 127.0.0.1: Ray takes
that for the machine's outward address and looks for the cluster there."""
START_DEADLINE_S = 180.0
START_TRIES = 3
LOOK_S = 1.0
"""Longer than anybody holds the lock who only looks whether a holder lives."""
OBJECT_STORE_BYTES = 80 << 20
"""Ray refuses less than 75 MiB; Atoll keeps nothing in it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """`LxNxS`: leaf switches, nodes under each, accelerators (slots) of each node."""

    leaves: int
    nodes: int
    slots: int

    @classmethod
    def parse(cls, text: str) -> Shape:
        match = re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,2})x([1-9]\d{0,2})", text)
        if match is None:
            raise ValueError(f"shape {text!r}: expected LEAVESxNODESxSLOTS, for example 2x2x2")
        return cls(*(int(part) for part in match.groups()))

    def __str__(self) -> str:
        return f"{self.leaves}x{self.nodes}x{self.slots}"

    def hosts(self) -> Iterator[tuple[str, str]]:
        """(host, leaf) of every node: `l0n0` under `l0`, ..."""
        for leaf in range(self.leaves):
            for node in range(self.nodes):
                yield f"l{leaf}n{node}", f"l{leaf}"


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """What the state file says."""

    address: str
    pid: int
    shape: str
    raylets: Mapping[str, int] = field(default_factory=dict)
    """Process id of the raylet of each node: killing it is switching the node off."""


def living(state_directory: Path) -> LocalCluster | None:
    """The cluster whose holder lives and is ready in `state_directory`; None when there is none."""
    path = state_directory / LOCK
    if not path.exists():
        return None
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                return LocalCluster(**json.loads((state_directory / FILE).read_text()))
            except FileNotFoundError:
                return None
    return None


class AlreadyRunningError(RuntimeError):
    """Another holder lives in the state directory."""


class ClusterStartError(RuntimeError):
    """No try brought the cluster up; the text says what failed at last."""


class HeadLostError(RuntimeError):
    """The one process that no cluster goes on without has died."""


def _lock(descriptor: int) -> bool:
    """Takes the lock; False when another holder has it. One who only looks (`living`) has it for a moment, too."""
    deadline = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_S / 20)


@contextmanager
def _locked(state_directory: Path) -> Iterator[None]:
    """Holds the lock for as long as the process lives; AlreadyRunningError when another does."""
    descriptor = os.open(state_directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _lock(descriptor):
            there = living(state_directory)
            what = f"{there.shape} at {there.address}, process {there.pid}" if there else "still starting"
            raise AlreadyRunningError(
                f"a local cluster already lives in {state_directory}: {what}; end it with SIGTERM or use another "
                "state directory"
            )
        yield
    finally:
        os.close(descriptor)


def _write_aside(path: Path, value: Mapping[str, Any]) -> None:
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(value, indent=1) + "\n")
    aside.replace(path)


def _start_with_retries(shape: Shape, marker: str, directory: Path) -> tuple[LocalNodes, dict[str, int]]:
    """On a busy machine a raylet may give up before it has registered; then everything is begun anew, some times."""
    from actors.local_nodes import how_busy

    for attempt in range(1, START_TRIES + 1):
        try:
            return _start(shape)
        except Exception as error:
            failure = error
        janitor.sweep(marker, directory)
        shutil.rmtree(directory / "ray", ignore_errors=True)
        if attempt < START_TRIES:
            print(f"start {attempt} of {START_TRIES} failed: {failure}", file=sys.stderr, flush=True)
    raise ClusterStartError(
        f"local cluster {shape} did not start in {START_TRIES} tries; at last {failure}; {how_busy()}"
    ) from failure


def _start(shape: Shape) -> tuple[LocalNodes, dict[str, int]]:
    """The head and one raylet a node; returns the nodes and the raylets' process ids."""
    from actors.local_nodes import LocalNodes

    nodes = LocalNodes(
        deadline=time.monotonic() + START_DEADLINE_S,
        runtime_environments=os.environ.get(RUNTIME_ENVIRONMENTS) == "1",
        shared={"object_store_memory": OBJECT_STORE_BYTES, "node_ip_address": ADDRESS},
    )
    nodes.start_head()
    raylets = {
        host: nodes.start(
            host,
            num_cpus=shape.slots,
            labels={"host": host, "leaf": leaf, "island": host, "accelerator": "cpu"},
            resources={f"gpu{index}": 1 for index in range(shape.slots)},
        )
        for host, leaf in shape.hosts()
    }
    nodes.check()
    return nodes, raylets


class _Signals:
    """Signals as bytes in a pipe, whichever thread the kernel gave them to; children would inherit a blocked mask."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._reading, True)
        signal.set_wakeup_fd(writing)
        for number in numbers:
            signal.signal(number, lambda *_: None)

    def wait(self) -> list[int]:
        return list(os.read(self._reading, 64))


def _wait_for_end(gcs: int) -> None:
    """Returns on SIGTERM or SIGINT. Reaps children meanwhile: a raylet left a zombie keeps its workers waiting.

    HeadLostError when the process `gcs` has died: it kept the cluster's state in memory, so nobody can take its place.
    """
    signals = _Signals((signal.SIGTERM, signal.SIGINT, signal.SIGCHLD))
    while True:
        janitor.reap_children()
        if not alive(gcs):
            raise HeadLostError(f"the head of the local cluster (GCS, process {gcs}) died; the cluster ends")
        if any(number != signal.SIGCHLD for number in signals.wait()):
            return


def hold(shape: Shape, state_directory: Path) -> None:
    """Starts the cluster, says where it is, holds it until told to end, ends it whole."""
    state_directory.mkdir(parents=True, exist_ok=True)
    with _locked(state_directory):
        file = state_directory / FILE
        file.unlink(missing_ok=True)
        temporary = Path(
            tempfile.mkdtemp(prefix="atoll-", dir="/tmp")
        )  # short: socket paths end at 107 bytes
        os.environ[MARKER] = str(temporary)
        os.environ["RAY_TMPDIR"] = str(temporary)
        os.environ["TMPDIR"] = str(temporary)  # what agents and ranks leave behind goes with the cluster
        marker = f"{MARKER}={temporary}"
        watch = janitor.start(marker, temporary)
        ray_environment.prepare(local=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        began = time.monotonic()
        try:
            nodes, raylets = _start_with_retries(shape, marker, temporary)
            started = LocalCluster(nodes.address, os.getpid(), str(shape), raylets)
            _write_aside(file, asdict(started))
            print(
                f"local cluster {shape} at {started.address} after {time.monotonic() - began:.1f} s",
                flush=True,
            )
            _wait_for_end(nodes.gcs)
        finally:
            file.unlink(missing_ok=True)
            janitor.sweep(marker, temporary)
            shutil.rmtree(temporary, ignore_errors=True)
            watch.release()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m actors.local_cluster", description=__doc__)
    parser.add_argument("--shape", type=Shape.parse, required=True, help="LEAVESxNODESxSLOTS, e.g. 2x2x2")
    parser.add_argument("--state-directory", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        hold(arguments.shape, arguments.state_directory.absolute())
    except (AlreadyRunningError, ClusterStartError, HeadLostError) as error:
        print(error, file=sys.stderr, flush=True)
        os._exit(1)
    # Ray's exit handlers would wait for processes that are gone already.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
