"""What Alembic runs: the connection comes from `upgrade.py`, which holds the lock and the transaction."""

from __future__ import annotations

from typing import Any, Literal

from alembic import context

from orchestrator.store.column_types import BoundedCount, BoundedStep, CleanJson, CleanText, UtcDateTime
from orchestrator.store.tables import Table


def render(kind: str, item: Any, _context: Any) -> str | Literal[False]:
    """Plain types in revisions: an old revision must mean the same after our types have changed."""
    if kind == "type" and isinstance(item, CleanJson):
        return 'sa.JSON().with_variant(postgresql.JSONB(), "postgresql")'
    if kind == "type" and isinstance(item, UtcDateTime):
        return "sa.DateTime(timezone=True)"
    if kind == "type" and isinstance(item, CleanText):
        return "sa.Text()"
    if kind == "type" and isinstance(item, BoundedStep):
        return "sa.Integer()"
    if kind == "type" and isinstance(item, BoundedCount):
        return "sa.BigInteger()"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,  # SQLite cannot alter a column: Alembic rebuilds the table
    compare_type=True,
    render_item=render,
    transactional_ddl=True,
)
context.run_migrations()
