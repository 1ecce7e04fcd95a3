"""One clock for every process of the control plane: the database's. Their own may differ by minutes, and are not read.

SQLite has no server: its file lies on one machine, whose clock is the one that all its users share.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

RESYNC_S = 30.0
"""Between two questions to the server; meanwhile its time goes on by this process's steady clock."""


def database_time(connection: Connection) -> datetime:
    """The time now by the clock of the database that `connection` leads to."""
    if connection.dialect.name == "sqlite":
        return datetime.now(UTC)
    told: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    return told.astimezone(UTC)


class DatabaseClock:
    """The database's time without a question each time. While the server is away its last answer goes on to hold; a
    process that never had one gets the error. Safe to call from several threads."""

    def __init__(self, engine: Engine, steady_s: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._steady_s = steady_s
        self._lock = threading.Lock()
        self._known: tuple[datetime, float] | None = None
        """The server's time and the steady time that it was told at."""
        self._due_s = float("-inf")

    def __call__(self) -> datetime:
        if self._engine.dialect.name == "sqlite":
            return datetime.now(UTC)
        if self._known is None:
            with self._lock:
                if self._known is None:
                    self._ask()
        elif self._steady_s() >= self._due_s and self._lock.acquire(blocking=False):
            try:
                self._ask()
            except SQLAlchemyError:
                pass
            finally:
                self._lock.release()
        assert self._known is not None
        told, at_s = self._known
        return told + timedelta(seconds=self._steady_s() - at_s)

    def _ask(self) -> None:
        self._due_s = self._steady_s() + RESYNC_S  # first: a server that is away is not asked with every call
        with self._engine.connect() as connection:
            asked_s = self._steady_s()
            told = database_time(connection)
            self._known = told, (asked_s + self._steady_s()) / 2
