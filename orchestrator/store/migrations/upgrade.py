"""Running migrations from the program: no alembic.ini, no URL in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from orchestrator.store.engine import WRITES, open_database
from orchestrator.store.tables import Table

_ADVISORY_LOCK = 0x61746F6C6C  # "atoll": any number, the same in every process


def upgrade(url: str, revision: str = "head") -> None:
    """Brings the database to `revision`. Safe from several processes at once: the others wait."""
    with _exclusive(url) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    with _exclusive(url) as connection:
        command.downgrade(_config(connection), revision)


def current_revision(url: str) -> str | None:
    """None for a database that was never migrated."""
    with _exclusive(url) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str | None:
    return ScriptDirectory.from_config(_config(None)).get_current_head()


def differences(url: str) -> list[Any]:
    """Where the database and `tables.py` differ; empty when they agree."""
    with _exclusive(url) as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Table.metadata))


def write_revision(url: str, message: str) -> None:
    """Writes the next file of `versions/`: from the database at `url` to `tables.py`."""
    with _exclusive(url) as connection:
        command.revision(_config(connection), message=message, autogenerate=True)


@contextmanager
def _exclusive(url: str) -> Iterator[Connection]:
    """One transaction, one migration at a time. DDL is transactional on both databases: all or nothing."""
    database = open_database(url, foreign_keys=False)
    try:
        engine = database.engine.execution_options(**{WRITES: True})
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            yield connection
            if connection.dialect.name == "sqlite":
                broken = connection.execute(text("PRAGMA foreign_key_check")).all()
                if broken:
                    raise RuntimeError(f"migration would break foreign keys: {broken[:5]}")
    finally:
        database.close()


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
