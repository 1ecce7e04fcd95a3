"""A controller process as `atoll.controller` is one, on the cluster that a test serves, with a clock of its own.

    python controller_process.py CLUSTER_PORT CLOCK_AHEAD_S LEASE_S

Settings come from the environment. Its name is that of another machine, so nobody can see that it is dead: its lease
must run out.
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import threading
import time

_, port, ahead_s, lease_s = sys.argv
_ahead = datetime.timedelta(seconds=float(ahead_s))
_time = time.time


class WrongDatetime(datetime.datetime):
    """What this process takes for the time."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return super().now(tz) + _ahead


datetime.datetime = WrongDatetime  # type: ignore[misc]  # before anything takes it by name
time.time = lambda: _time() + _ahead.total_seconds()

from atoll import controller  # noqa: E402
from orchestrator.lifecycle import leadership  # noqa: E402
from orchestrator.lifecycle.ports import Launcher  # noqa: E402
from orchestrator.settings import Settings, read_settings  # noqa: E402
from tests.atoll.served_cluster import connect  # noqa: E402


def main() -> int:
    leadership.LEASE_S = float(lease_s)
    leadership.RENEW_EVERY_S = float(lease_s) / 4
    controller.RETRY_S = 0.2
    controller.identity = lambda: f"elsewhere/{os.getpid()}"
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def launcher(_: Settings) -> Launcher:
        return connect(int(port))

    return controller.run_controller(read_settings(), launcher, stop)


if __name__ == "__main__":
    raise SystemExit(main())
