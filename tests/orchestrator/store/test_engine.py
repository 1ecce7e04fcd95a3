"""A database that does not answer."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from orchestrator.store import engine
from orchestrator.store.engine import open_database


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that was cut off takes connections no more, or takes them and falls silent; libpq would wait for ever."""
    monkeypatch.setattr(engine, "POSTGRESQL_DEADLINES", {**engine.POSTGRESQL_DEADLINES, "connect_timeout": 2})
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        database = open_database(f"postgresql+psycopg://a:b@127.0.0.1:{silent.getsockname()[1]}/c")
        began_s = time.monotonic()
        with pytest.raises(OperationalError, match="timeout"):
            database.ping()
        assert time.monotonic() - began_s < 30.0
        database.close()


def test_deadlines_in_the_url_go_first() -> None:
    database = open_database("postgresql+psycopg://a:b@127.0.0.1/c?connect_timeout=77")
    given: dict[str, Any] = {}

    @event.listens_for(database.engine, "do_connect")
    def look(_dialect: object, _record: object, _args: object, parameters: dict[str, Any]) -> None:
        given.update(parameters)
        raise ConnectionAbortedError

    with pytest.raises(ConnectionAbortedError):
        database.ping()
    assert given["connect_timeout"] == "77"
    assert given["keepalives_idle"] == engine.POSTGRESQL_DEADLINES["keepalives_idle"]
    database.close()
