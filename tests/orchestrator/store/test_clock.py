"""One clock for the whole control plane, whatever the clocks of its machines say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from orchestrator.store import clock
from orchestrator.store.clock import DatabaseClock
from orchestrator.store.engine import Database

SERVER_S = datetime(2031, 5, 4, tzinfo=UTC)


class Steady:
    """A process's steady clock, and a database whose own clock says SERVER_S when the steady one says 0."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = 0.0
        self.asked = 0
        self.away = False
        monkeypatch.setattr(clock, "database_time", self.tell)

    def tell(self, _: object) -> datetime:
        self.asked += 1
        if self.away:
            raise OperationalError("SELECT", {}, Exception("the server is away"))
        return SERVER_S + timedelta(seconds=self.s)


@pytest.fixture
def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    return Steady(monkeypatch)


@pytest.fixture
def postgresql_engine(database: Database) -> Engine:
    return database.engine


only_postgresql = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@only_postgresql
def test_the_servers_time_goes_on_between_two_questions(postgresql_engine: Engine, steady: Steady) -> None:
    now = DatabaseClock(postgresql_engine, lambda: steady.s)
    for steady.s in (0.0, 1.0, clock.RESYNC_S - 1):
        assert now() == SERVER_S + timedelta(seconds=steady.s)
    assert steady.asked == 1
    steady.s = clock.RESYNC_S
    assert now() == SERVER_S + timedelta(seconds=steady.s)
    assert steady.asked == 2


@only_postgresql
def test_while_the_server_is_away_its_last_answer_holds(postgresql_engine: Engine, steady: Steady) -> None:
    now = DatabaseClock(postgresql_engine, lambda: steady.s)
    now()
    steady.away, steady.s = True, 2 * clock.RESYNC_S
    for _ in range(3):
        assert now() == SERVER_S + timedelta(seconds=steady.s)
    assert steady.asked == 2, "a server that is away is not asked with every call"


@only_postgresql
def test_without_any_answer_there_is_no_time(postgresql_engine: Engine, steady: Steady) -> None:
    steady.away = True
    with pytest.raises(OperationalError):
        DatabaseClock(postgresql_engine, lambda: steady.s)()


def test_a_real_server_is_asked(database: Database) -> None:
    """Server and test share a machine here, so the two clocks agree."""
    assert abs(database.now() - datetime.now(UTC)) < timedelta(seconds=30)
    assert database.now().tzinfo is UTC
