"""Leading: taking the lease, keeping it, and knowing at once when it is lost."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.store import leases
from orchestrator.store.clock import database_time
from orchestrator.store.engine import Database
from orchestrator.store.errors import LeadershipLostError

LEASE_S = 10.0
"""How long a leader that says nothing is still taken for alive."""
RENEW_EVERY_S = LEASE_S / 4

log = structlog.get_logger(__name__)


def identity() -> str:
    """This process, so that no other one, now or later, has the same name: host, process space, pid, start time."""
    try:
        started = _start_time(os.getpid())
    except OSError:  # no /proc: the name is unique still, but nobody can tell that it is dead
        started = secrets.token_hex(8)
    return f"{socket.gethostname()}/{_pid_namespace()}/{os.getpid()}/{started}"


def is_surely_dead(holder: str) -> bool:
    """Whether `holder` was a process of this host and process space and is gone. False when it cannot be told."""
    try:
        host, namespace, pid, started = holder.rsplit("/", 3)
        number = int(pid)
    except ValueError:
        return False
    if (host, namespace) != (socket.gethostname(), _pid_namespace()) or namespace == "":
        return False
    try:
        return _start_time(number) != started
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _pid_namespace() -> str:
    try:
        return f"{Path('/proc/self/ns/pid').stat().st_ino}-{Path('/proc/sys/kernel/random/boot_id').read_text()[:8]}"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """Start of a process in clock ticks since boot (proc(5), field 22); `zombie` for one that has ended already.

    OSError: there is none, or it is hidden.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "zombie" if fields[0] == "Z" else fields[19]


class Lease:
    """The leader lease while this process holds it; a thread renews it. It ends by the database's clock alone.

    `lost` is set when another took it, and also when it could not be renewed for its whole time: then another may lead.
    """

    def __init__(self, database: Database, token: int) -> None:
        self.token = token
        self.lost = threading.Event()
        self._database = database
        self._done = threading.Event()
        self._renewed_at_s = time.monotonic()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, database: Database, *, holder: str, endpoint: str | None) -> Lease | None:
        """None while another controller leads."""
        with database.write() as session:
            token = leases.acquire(
                session,
                holder,
                now=database_time(session.connection()),
                ttl=timedelta(seconds=LEASE_S),
                endpoint=endpoint,
                is_dead=is_surely_dead,
            )
        return None if token is None else cls(database, token)

    def _renew(self) -> None:
        while not self._done.wait(RENEW_EVERY_S):
            try:
                with self._database.write() as session:
                    now = database_time(session.connection())
                    leases.renew(session, self.token, now=now, ttl=timedelta(seconds=LEASE_S))
                self._renewed_at_s = time.monotonic()
            except LeadershipLostError as error:
                log.warning("leadership-lost", message=str(error))
                self.lost.set()
                return
            except SQLAlchemyError as error:
                log.warning("lease-not-renewed", message=str(error).splitlines()[0])
                if time.monotonic() - self._renewed_at_s > LEASE_S:
                    self.lost.set()
                    return

    def give_back(self) -> None:
        """Another controller may lead at once."""
        self._done.set()
        self._thread.join()
        if self.lost.is_set():
            return
        try:
            with self._database.write() as session:
                leases.release(session, self.token, now=database_time(session.connection()))
        except (LeadershipLostError, SQLAlchemyError) as error:
            log.warning("lease-not-released", message=str(error).splitlines()[0])
