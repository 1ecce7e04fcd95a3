"""The controller process: `python -m atoll.controller`.

It waits for the leader lease, then reconciles until it is told to stop, loses the lease, or loses the cluster for
good. It keeps nothing that matters in memory and may be killed at any moment. It is the one process that is a Ray
driver; `atoll serve` starts it again when it ends with a code other than 0.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

import structlog
from sqlalchemy.exc import SQLAlchemyError

from atoll.controller_http import PrivateEndpoint
from orchestrator.lifecycle.leadership import Lease, identity
from orchestrator.lifecycle.ports import ClusterUnreachableError, Launcher
from orchestrator.lifecycle.reconciler import Reconciler
from orchestrator.lifecycle.record import Record
from orchestrator.queue.policy import InvalidPolicyError, QueuePolicy, read_policy_file
from orchestrator.settings import InvalidSettingsError, Settings, read_settings
from orchestrator.store.engine import Database, open_database
from orchestrator.store.errors import LeadershipLostError
from orchestrator.store.migrations import upgrade
from orchestrator.topology.declared import Declared, DeclaredFabric, split_files
from orchestrator.topology.read import FabricFile
from orchestrator.topology.sources.reading import InvalidFabricError

ROUND_S = 0.25
"""Between the beginnings of two rounds: how soon a submit, a cancel or a report is acted on."""
WORKERS = 32
"""Acts on different jobs at the same time; they wait for the cluster, they do not compute."""
RETRY_S = 1.0
GIVE_UP_S = 60.0
"""A cluster that was reached and then gives no answer for this long needs a new Ray driver, so a new process."""

log = structlog.get_logger(__name__)


class ExitCode(IntEnum):
    STOPPED = 0
    USAGE = 2
    CLUSTER_LOST = 75
    """EX_TEMPFAIL: start me again."""


class ClusterLostError(Exception):
    pass


def run_controller(
    settings: Settings, launcher_factory: Callable[[Settings], Launcher], stop: threading.Event
) -> ExitCode:
    """Runs until `stop` is set (STOPPED) or the Ray driver must be made anew (CLUSTER_LOST)."""
    declared, policy = declared_fabric(settings), queue_policy(settings)
    url = settings.resolved_database_url()
    upgrade(url)
    database = open_database(url)
    controller = _Controller(settings, database, launcher_factory, stop, declared, policy)
    try:
        return controller.run()
    finally:
        controller.close()
        database.close()


class _Controller:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        launcher_factory: Callable[[Settings], Launcher],
        stop: threading.Event,
        declared: Callable[[], Declared] | None,
        policy: QueuePolicy,
    ) -> None:
        self._settings = settings
        self._policy = policy
        self._declared = declared
        self._database = database
        self._launcher_factory = launcher_factory
        self._stop = stop
        self._launcher: Launcher | None = None
        self._endpoint = self._open_endpoint()
        self._holder = identity()

    def _open_endpoint(self) -> PrivateEndpoint | None:
        if self._settings.internal_token is None:
            log.warning(
                "live-logs-off", message="ATOLL_INTERNAL_TOKEN is not set: logs come after the end only"
            )
            return None
        token = self._settings.internal_token.get_secret_value()
        host, port = self._settings.controller_host, self._settings.controller_port
        return PrivateEndpoint(host, port, token, lambda: self._launcher)

    def close(self) -> None:
        if self._endpoint is not None:
            self._endpoint.close()

    def run(self) -> ExitCode:
        waiting_told = False
        while not self._stop.is_set():
            try:
                endpoint = self._endpoint.url if self._endpoint is not None else None
                lease = Lease.take(self._database, holder=self._holder, endpoint=endpoint)
            except SQLAlchemyError as error:
                log.error("database-unreachable", message=str(error).splitlines()[0])
                lease = None
            if lease is None:
                if not waiting_told:
                    log.info("waiting-for-lease")
                waiting_told = True
                self._stop.wait(RETRY_S)
                continue
            waiting_told = False
            log.info("leading", token=lease.token, holder=self._holder)
            try:
                self._lead(lease)
            except LeadershipLostError as error:
                log.warning("leadership-lost", message=str(error))
            except SQLAlchemyError as error:
                log.error("database-unreachable", message=str(error).splitlines()[0])
                self._stop.wait(RETRY_S)
            except ClusterLostError as error:
                log.error("cluster-lost", message=str(error))
                return ExitCode.CLUSTER_LOST
            finally:
                lease.give_back()
        return ExitCode.STOPPED

    def _lead(self, lease: Lease) -> None:
        self._database.now()  # first asked here, where no thread waits for it with a connection in its hands
        launcher = self._connect(lease)
        if launcher is None:
            return
        executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="act")
        reconciler = Reconciler(
            self._database,
            launcher,
            token=lease.token,
            storage_directory=self._settings.resolved_storage_directory(),
            executor=executor,
            clock=self._database.now,
            declared=self._declared,
            policy=self._policy,
        )
        try:
            while not self._stop.is_set() and not lease.lost.is_set():
                began_s = time.monotonic()
                self._round(reconciler)
                self._stop.wait(max(0.0, ROUND_S - (time.monotonic() - began_s)))
        finally:
            reconciler.stop()
            executor.shutdown(wait=True, cancel_futures=True)

    def _round(self, reconciler: Reconciler) -> None:
        try:
            sighting = reconciler.round()
        except SQLAlchemyError as error:
            log.error("database-unreachable", message=str(error).splitlines()[0])
            self._stop.wait(RETRY_S)
            return
        if sighting.fabric is None and sighting.unreachable_s > GIVE_UP_S:
            raise ClusterLostError(f"no answer for {sighting.unreachable_s:.0f} s: {sighting.message}")

    def _connect(self, lease: Lease) -> Launcher | None:
        """The launcher, made once in a process. None when told to stop or when the lease was lost meanwhile."""
        record = Record(self._database, lease.token, self._database.now)
        while self._launcher is None and not self._stop.is_set() and not lease.lost.is_set():
            try:
                self._launcher = self._launcher_factory(self._settings)
            except ClusterUnreachableError as error:
                message = f"The controller cannot connect to the cluster: {error}"
                log.warning("cluster-unreachable", message=message)
                record.cluster_unreachable(message)
                self._stop.wait(RETRY_S)
        return None if self._stop.is_set() or lease.lost.is_set() else self._launcher


def declared_fabric(settings: Settings) -> DeclaredFabric | None:
    """What `settings.fabric_file` declares; None without one. InvalidFabricError, also for an unreadable file."""
    if settings.fabric_file is None:
        return None
    return DeclaredFabric([FabricFile.parse(file) for file in split_files(settings.fabric_file)])


def queue_policy(settings: Settings) -> QueuePolicy:
    """The policy of `settings.queue_policy_file`, or the default one. InvalidPolicyError."""
    path = settings.queue_policy_file
    return QueuePolicy() if path is None else read_policy_file(path)


def configure_logs(as_json: bool) -> None:
    """Lines on standard error: JSON for machines, or short text for people."""
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # Here and not by the renderer for people, which shows the variables of every frame: a database's password.
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def connect_to_ray(settings: Settings) -> Launcher:
    """Imported late: the tests of this module and `--help` need no Ray."""
    from actors.launcher import RayLauncher

    if settings.ray_address is None:
        raise SystemExit("the controller needs ATOLL_RAY_ADDRESS (HOST:PORT of the Ray cluster)")
    return RayLauncher(settings.ray_address)


def main() -> int:
    try:
        settings = read_settings()
    except InvalidSettingsError as error:
        print(f"atoll: {error}", file=sys.stderr)
        return ExitCode.USAGE
    configure_logs(settings.log_json)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return run_controller(settings, connect_to_ray, stop)
    except InvalidFabricError as error:
        log.error("fabric-file-refused", message=str(error))
        return ExitCode.USAGE
    except InvalidPolicyError as error:
        log.error("queue-policy-file-refused", message=str(error))
        return ExitCode.USAGE


if __name__ == "__main__":
    raise SystemExit(main())
