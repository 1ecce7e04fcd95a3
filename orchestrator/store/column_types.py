"""Column types that mean the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

from orchestrator.lifecycle.said import LARGEST_COUNT, LARGEST_STEP, whole


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime in UTC. SQLite keeps no time zone: a naive value is refused, not guessed at."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(DateTime(timezone=dialect.name != "sqlite"))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone; the store takes aware datetimes only")
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def storable_text(text: str) -> str:
    """`text` without what PostgreSQL refuses: NUL characters and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def storable_json(value: Any) -> Any:
    """`value` as JSON that both databases take: text cleaned, tuples as lists, NaN and infinities as null."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {storable_text(str(key)): storable_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_json(item) for item in value]
    return value


class BoundedStep(TypeDecorator[int]):
    """A number of steps that may come from a rank program."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return None if value is None else whole(value, LARGEST_STEP)


class BoundedCount(TypeDecorator[int]):
    """A count of tokens or bytes that may come from a rank program."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        return None if value is None else whole(value, LARGEST_COUNT)


class CleanText(TypeDecorator[str]):
    """Text that may come from a process's output."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else storable_text(value)


class CleanJson(TypeDecorator[Any]):
    """JSON (JSONB on PostgreSQL) that may come from a rank program."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(JSONB() if dialect.name == "postgresql" else JSON())

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return storable_json(value)
