"""The cluster in memory, served to controllers in processes of their own: it outlives every one of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.managers import BaseManager

from orchestrator.lifecycle.ports import Launcher
from tests.orchestrator.lifecycle.fake_cluster import FakeCluster, FakeLauncher

KEY = b"test"
TICK_S = 0.1
METHODS = [
    "fabric",
    "gangs",
    "remembered",
    "forget",
    "start",
    "poll",
    "cancel",
    "vacate",
    "move",
    "read_log",
    "reap",
]  # of ports.Launcher


class SharedLauncher(FakeLauncher):
    """One call at a time, and none while the cluster moves."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.lock = threading.RLock()

    @contextmanager
    def _call(self) -> Iterator[None]:
        with self.lock, super()._call():
            yield


class _Manager(BaseManager):
    pass


@contextmanager
def served(cluster: FakeCluster) -> Iterator[int]:
    """The port at which `connect` finds the cluster, which makes a move every TICK_S."""
    launcher, over = SharedLauncher(cluster), threading.Event()

    class Serving(BaseManager):
        pass

    Serving.register("launcher", lambda: launcher, exposed=METHODS)
    server = Serving(("127.0.0.1", 0), KEY).get_server()

    def serve() -> None:
        with suppress(SystemExit):  # its way of saying that it was stopped
            server.serve_forever()

    threading.Thread(target=serve, daemon=True).start()

    def move() -> None:
        while not over.wait(TICK_S):
            with launcher.lock:
                cluster.tick()

    moving = threading.Thread(target=move)
    moving.start()
    try:
        yield server.address[1]
    finally:
        over.set()
        moving.join()
        server.stop_event.set()


def connect(port: int) -> Launcher:
    """The launcher of the cluster that a test serves at `port`."""
    _Manager.register("launcher", exposed=METHODS)
    manager = _Manager(("127.0.0.1", port), KEY)
    manager.connect()
    launcher: Launcher = manager.launcher()  # type: ignore[attr-defined]
    return launcher
