"""One leader at a time, and a token that only grows."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.store import leases
from orchestrator.store.engine import Database
from orchestrator.store.errors import LeadershipLostError

NOW = datetime(2026, 5, 4, tzinfo=UTC)
TTL = timedelta(seconds=10)


def take(database: Database, holder: str, *, at: datetime = NOW, dead: bool = False) -> int | None:
    with database.write() as session:
        return leases.acquire(
            session, holder, now=at, ttl=TTL, endpoint=f"http://{holder}", is_dead=lambda _: dead
        )


def current(database: Database) -> leases.LeaseState:
    with database.read() as session:
        found = leases.current(session)
    assert found is not None
    return found


def test_no_lease_before_any_controller(database: Database) -> None:
    with database.read() as session:
        assert leases.current(session) is None


def test_the_first_takes_it_and_the_second_waits(database: Database) -> None:
    assert take(database, "a") == 1
    assert take(database, "b") is None
    found = current(database)
    assert (found.token, found.holder, found.endpoint, found.expires_at) == (1, "a", "http://a", NOW + TTL)
    assert found.is_held(NOW)
    assert not found.is_held(NOW + TTL)


def test_it_runs_out_unless_renewed(database: Database) -> None:
    assert take(database, "a") == 1
    with database.write() as session:
        leases.renew(session, 1, now=NOW + TTL / 2, ttl=TTL)
    assert take(database, "b", at=NOW + TTL) is None
    assert take(database, "b", at=NOW + TTL * 1.5) == 2
    with pytest.raises(LeadershipLostError), database.write() as session:
        leases.renew(session, 1, now=NOW + TTL, ttl=TTL)
    assert current(database).holder == "b"


def test_a_dead_holder_is_not_waited_for(database: Database) -> None:
    assert take(database, "a") == 1
    assert take(database, "b", dead=True) == 2


def test_released_it_is_free_at_once_and_the_token_still_grows(database: Database) -> None:
    assert take(database, "a") == 1
    with database.write() as session:
        leases.release(session, 1, now=NOW)
    assert current(database).holder is None
    assert take(database, "b") == 2


def test_the_deposed_leader_cannot_write(database: Database) -> None:
    take(database, "a")
    take(database, "b", at=NOW + TTL)
    with (
        pytest.raises(LeadershipLostError, match="token is 1, the lease's is 2"),
        database.write() as session,
    ):
        leases.hold(session, 1)
    with database.write() as session:
        leases.hold(session, 2)
    with pytest.raises(LeadershipLostError), database.write() as session:
        leases.release(session, 1, now=NOW)
    with pytest.raises(LeadershipLostError), database.write() as session:
        leases.report_cluster(session, 1, reachable=True, message="")


def test_a_lease_cannot_change_hands_within_a_leaders_transaction(database: Database) -> None:
    """The other one's acquire waits until the transaction that checked the token has ended."""
    take(database, "a")
    order: list[str] = []
    inside, taken = threading.Event(), threading.Event()

    def usurper() -> None:
        inside.wait(60)
        take(database, "b", at=NOW + TTL)
        order.append("taken")
        taken.set()

    thread = threading.Thread(target=usurper)
    thread.start()
    with database.write() as session:
        leases.hold(session, 1)
        inside.set()
        assert not taken.wait(0.5)
        order.append("written")
    thread.join(60)
    assert order == ["written", "taken"]


def test_many_race_and_one_leads(database: Database) -> None:
    for race in range(5):
        at = NOW + TTL * race
        together = threading.Barrier(5)
        tokens: list[int | None] = []

        def contender(name: str, at: datetime, together: threading.Barrier, tokens: list[int | None]) -> None:
            together.wait(60)
            tokens.append(take(database, name, at=at))

        threads = [
            threading.Thread(target=contender, args=(f"{race}-{i}", at, together, tokens)) for i in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted(token for token in tokens if token is not None) == [race + 1]
        assert len(tokens) == 5
