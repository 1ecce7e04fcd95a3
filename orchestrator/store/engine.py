"""Opening the database: SQLite for one machine, PostgreSQL in production."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.orm import Session

from orchestrator.store.clock import DatabaseClock

BUSY_TIMEOUT_S = 30.0
"""How long a writer waits for another one on SQLite before it fails."""

POSTGRESQL_DEADLINES: Mapping[str, int] = {
    "connect_timeout": 10,  # seconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
"""libpq's own defaults wait for minutes or for ever on a server that was cut off; parameters in the URL go first."""

WRITES = "atoll_writes"
"""Execution option of a connection that writes: its transactions take the write lock on SQLite."""


class Database:
    """An engine and the two ways to use it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        self._clock = DatabaseClock(engine)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A session for reading: one snapshot on SQLite; nothing is committed."""
        with Session(self.engine, expire_on_commit=False, autoflush=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session for one write transaction: committed at the end, rolled back when the block raises.

        On SQLite it takes the write lock at its first statement (BEGIN IMMEDIATE): what it reads stays true
        until it commits, and it waits for another writer instead of failing half-way.
        """
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    def now(self) -> datetime:
        """The time, the same for every process of the control plane whatever its machine's clock says."""
        return self._clock()

    def ping(self) -> None:
        """Raises when the database gives no answer."""
        with self.engine.connect() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        self.engine.dispose()


def open_database(url: str, *, foreign_keys: bool = True) -> Database:
    """The database at a SQLAlchemy `url`. `foreign_keys=False`: for migrations, which rebuild tables."""
    parsed = make_url(url)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise ValueError("database URL: SQLite needs a file: sqlite:////folder/atoll.db")
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})
        _configure_sqlite(engine, foreign_keys=foreign_keys)
    elif backend == "postgresql":
        deadlines = {name: value for name, value in POSTGRESQL_DEADLINES.items() if name not in parsed.query}
        engine = create_engine(
            parsed, pool_pre_ping=True, pool_size=10, max_overflow=10, connect_args=deadlines
        )
    else:
        raise ValueError(f"database URL: {backend} is not supported; use sqlite:// or postgresql://")
    return Database(engine)


def _configure_sqlite(engine: Engine, *, foreign_keys: bool) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # BEGIN is sent below; pysqlite's own would come too late
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")  # readers do not wait for the writer
        # With WAL, NORMAL is safe against kill -9; a power cut may take the last commits, never the file.
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
