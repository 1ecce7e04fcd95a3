"""The environment Ray runs in, said explicitly before `import ray`, for cluster processes and drivers alike.

Ray reads its settings from the process environment when its C++ part is loaded, so `prepare` comes first in every
process that uses Ray. Nothing here is read from anywhere: these are the values Atoll was measured with.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Mapping
from typing import Any

NAMESPACE = "atoll"

CONNECT_S = 5.0

SETTINGS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # A thread that calls Ray after shutdown() must get an error, not a new cluster of its own.
    "RAY_ENABLE_AUTO_CONNECT": "0",
    # Workers run at the priority of the raylet: ranks are forked from them.
    "RAY_worker_niceness": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_raylet_start_wait_time_s": "120",
    # Nobody reads Ray's history of tasks, and every process of a cluster would send its part every second.
    "RAY_task_events_report_interval_ms": "0",
    # A raylet gives up when its runtime environment agent has not answered in time (default 30 s): too short when busy.
    # It does not govern how long a raylet waits for the ports of its agents: 15 s, a constant (see local_nodes.py).
    "RAY_agent_register_timeout_ms": "180000",
    # A dead raylet is seen after 5 x 0.5 s of refused connections, a silent one after 5 x (0.5 + 2) s.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_grpc_client_keepalive_time_ms": "2000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    # Raylets outlive a restart of a head with persistent state.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "120",
}


def prepare(*, local: bool) -> None:
    """Puts the settings into this process's environment; call before `import ray`.

    `local`: the cluster is one of ours on this machine, which has no authentication. Otherwise RAY_AUTH_MODE stays what
    the environment says; unset, Ray would write a token file and turn tokens on by itself, so unset means disabled.
    """
    os.environ.update(SETTINGS)
    if local:
        os.environ["RAY_AUTH_MODE"] = "disabled"
    else:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")


def connect(address: str, *, local: bool = False) -> None:
    """Makes this process a driver of the cluster at `address` (`HOST:PORT`).

    Ray replaces the SIGTERM handler of the process; the caller's is put back. Raises ConnectionError, at once where
    nothing listens (Ray itself would try for minutes).
    """
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    prepare(local=local)
    import ray

    if ray.is_initialized():
        ray.shutdown()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    loopback: dict[str, Any] = {"_node_ip_address": host} if host.startswith("127.") else {}
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
            **loopback,
        )
    finally:
        for number, handler in handlers.items():
            _restore(number, handler)


def _restore(number: signal.Signals, handler: object) -> None:
    """Sets a handler again; only the main thread may, and one set from C cannot be."""
    try:
        signal.signal(number, handler)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return
