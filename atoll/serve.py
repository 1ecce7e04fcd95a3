"""`atoll serve`: the control plane on one machine.

It starts the API and the controller as processes of their own and starts them again when they die; with a shape, it
also joins or starts a local Ray cluster. API and controller die with this process, however it dies. The local cluster
outlives a kill and is joined by the next `atoll serve` on the same state directory; a clean stop ends it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from actors.local_cluster import LocalCluster, Shape
from atoll.children import Child, end
from atoll.errors import ServerUnreachableError
from atoll.local_ray import LocalRay
from atoll.preflight import (
    CannotServeError,
    check_directory,
    check_fabric_files,
    check_listen_address,
    check_queue_policy_file,
    check_ray_address,
    free_port,
    prepare_database,
)
from orchestrator.settings import InvalidSettingsError, Settings, read_settings
from orchestrator.topology.declared import absolute, split_files
from orchestrator.topology.sources.reading import InvalidFabricError

LOCK = "serve.lock"
ROUND_S = 0.2
READY_PATIENCE_S = 120.0

Say = Callable[[str], None]


def settings_for(**flags: Any) -> Settings:
    """Settings of the environment with the flags that were given put over them."""
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = read_settings(**given)
    except InvalidSettingsError as error:
        raise CannotServeError(str(error)) from None
    if "token_file" in given:
        return settings.model_copy(update={"token": None})
    if settings.token is not None and settings.token_file is not None:
        raise CannotServeError("ATOLL_TOKEN and ATOLL_TOKEN_FILE are both set; keep one of them")
    return settings


def _absolute(files: str) -> str:
    """Fabric files by paths that hold in any directory."""
    try:
        return os.pathsep.join(absolute(file) for file in split_files(files))
    except InvalidFabricError as error:
        raise CannotServeError(f"--fabric-file {error}") from None


def serve(settings: Settings, shape: Shape | None, token: str | None, say: Say) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises AtollError for all that cannot work."""
    settings = settings.model_copy(
        update={
            "state_directory": settings.state_directory.absolute(),
            "fabric_file": settings.fabric_file and _absolute(settings.fabric_file),
            "queue_policy_file": settings.queue_policy_file and settings.queue_policy_file.absolute(),
        }
    )
    if shape is None and settings.ray_address is None:
        raise CannotServeError(
            "say where Ray runs: --ray-address HOST:PORT joins a cluster (or RAY_ADDRESS), "
            "--local 2x2x2 starts one here (leaf switches x nodes x slots)"
        )
    if settings.fabric_file is not None:
        check_fabric_files(settings.fabric_file)
    if settings.queue_policy_file is not None:
        check_queue_policy_file(settings.queue_policy_file)
    check_listen_address(settings.host, settings.port, has_token=token is not None)
    if settings.port == 0:
        settings = settings.model_copy(update={"port": free_port(settings.host)})
    check_directory(settings.state_directory, "--state-directory")
    check_directory(settings.resolved_storage_directory(), "--storage-directory")
    with only_one(settings.state_directory):
        prepare_database(settings)
        if shape is None:
            check_ray_address(settings.ray_address or "")
        stop = threading.Event()
        with signals_set(stop):
            return ControlPlane(settings, shape, token, say, stop).run()


@contextmanager
def only_one(state_directory: Path) -> Iterator[None]:
    """Holds the state directory; CannotServeError when another `atoll serve` does, or when that cannot be told."""
    path = state_directory / LOCK
    try:
        opened = path.open("a+")
    except OSError as error:
        raise CannotServeError(f"{path} cannot be opened: {error.strerror or error}") from None
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise CannotServeError(
                f"another `atoll serve` (process {holder}) uses {state_directory}: give another --state-directory"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@contextmanager
def signals_set(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop` while inside."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class ControlPlane:
    """API, controller and, with a shape, the local cluster."""

    def __init__(
        self, settings: Settings, shape: Shape | None, token: str | None, say: Say, stop: threading.Event
    ) -> None:
        self._settings = settings
        self._say = say
        self._stop = stop
        self._token = token
        self._internal_token = (
            settings.internal_token.get_secret_value()
            if settings.internal_token
            else secrets.token_urlsafe(32)
        )
        self._local = LocalRay(shape, settings.state_directory, stop) if shape else None
        self._cluster: LocalCluster | None = None

    def run(self) -> int:
        children: list[Child] = []
        try:
            address = self._settings.ray_address or ""
            if self._local is not None:
                self._say(
                    "local Ray cluster: joining or starting it (some seconds, on a busy machine minutes)"
                )
                self._cluster = self._local.ensure()
                address = self._cluster.address
                self._say(
                    f"local Ray cluster {self._cluster.shape} at {address}, process {self._cluster.pid}"
                )
            environment = self._environment(address)
            api = Child("API", ["-m", "api"], environment)
            controller = Child("controller", ["-m", "atoll.controller"], environment)
            children = [api, controller]
            for child in children:
                child.start()
            return self._watch(api, controller)
        except ServerUnreachableError:
            if self._stop.is_set():  # told to stop while the local cluster was coming up
                return 0
            raise
        finally:
            self._say("stopping")
            end(children)
            if self._local is not None:
                self._local.end()
            self._say("stopped")

    def _watch(self, api: Child, controller: Child) -> int:
        """Tends the children until told to stop (0) or until one dies too often (1)."""
        ready_by: float | None = time.monotonic() + READY_PATIENCE_S
        while not self._stop.wait(ROUND_S):
            now = time.monotonic()
            for child in (api, controller):
                news = child.tend(now)
                if news:
                    self._say(news)
                if child.is_hopeless:
                    self._say(
                        f"{child.name} died {len(child.deaths)} times within minutes; its messages above say why"
                    )
                    return 1
            if ready_by is not None and self._answers():
                self._say(f"Atoll is ready: {self.url}")
                ready_by = None
            if ready_by is not None and now > ready_by:
                self._say(f"the API does not answer at {self.url} yet; still trying")
                ready_by = now + READY_PATIENCE_S
            self._renew_cluster(controller)
        return 0

    def _renew_cluster(self, controller: Child) -> None:
        """A dead local cluster is started again and the controller told its new address."""
        if self._local is None or self._cluster is None or self._local.is_alive(self._cluster):
            return
        self._say("the local Ray cluster died; starting another")
        self._cluster = self._local.ensure()
        self._say(f"local Ray cluster {self._cluster.shape} at {self._cluster.address}")
        controller.restart(self._environment(self._cluster.address))

    @property
    def url(self) -> str:
        host = self._settings.host
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return (
            f"http://[{shown}]:{self._settings.port}"
            if ":" in shown
            else f"http://{shown}:{self._settings.port}"
        )

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/healthz", timeout=2.0, trust_env=False).status_code == 200
        except httpx2.TransportError:
            return False

    def _environment(self, ray_address: str) -> Mapping[str, str | None]:
        """The settings in use, as API and controller read them. Secrets travel here and nowhere else."""
        settings = self._settings
        return {
            "ATOLL_DATABASE_URL": settings.resolved_database_url(),
            "ATOLL_STATE_DIRECTORY": str(settings.state_directory),
            "ATOLL_STORAGE_DIRECTORY": str(settings.resolved_storage_directory()),
            "ATOLL_HOST": settings.host,
            "ATOLL_PORT": str(settings.port),
            "ATOLL_RAY_ADDRESS": ray_address,
            "ATOLL_FABRIC_FILE": settings.fabric_file,
            "ATOLL_USER_CODE": str(settings.user_code).lower(),
            "ATOLL_QUEUE_POLICY_FILE": (
                str(settings.queue_policy_file) if settings.queue_policy_file else None
            ),
            "ATOLL_INTERNAL_TOKEN": self._internal_token,
            "ATOLL_TOKEN": self._token,
            "ATOLL_TOKEN_FILE": None,
        }
