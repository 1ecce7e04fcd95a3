"""The leader lease: of several controllers one acts, and one that has lost the lease can write nothing.

Time is an argument, the database's in production (`store/clock.py`), so clocks of controllers do not matter. Not even a
wrong time could make two leaders write, because every write checks the token (`hold`): it costs a change of leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from orchestrator.store.errors import LeadershipLostError
from orchestrator.store.tables import Lease

LEADER = "controller"


@dataclass(frozen=True, slots=True)
class LeaseState:
    token: int
    holder: str | None
    expires_at: datetime
    endpoint: str | None
    cluster_reachable: bool | None
    cluster_message: str
    queue: Mapping[str, Any] | None
    """As `report_queue` left it; null before the first holder that told it."""

    def is_held(self, now: datetime) -> bool:
        return self.holder is not None and self.expires_at > now


def acquire(
    session: Session,
    holder: str,
    *,
    now: datetime,
    ttl: timedelta,
    endpoint: str | None,
    is_dead: Callable[[str], bool] = lambda holder: False,
    name: str = LEADER,
) -> int | None:
    """The fencing token when the lease was free, run out or `holder`'s own; None while another holds it.

    `is_dead` says of another holder that it is surely dead, so that its lease need not run out first. Were it wrong,
    the other would be fenced off: a change of leader, never two.
    """
    row = session.get(Lease, name, with_for_update=True, populate_existing=True)
    if row is None:
        try:
            with session.begin_nested():
                session.add(Lease(name=name, token=1, holder=holder, expires_at=now + ttl, endpoint=endpoint))
        except IntegrityError:  # another made the row since we looked, so it holds the lease
            return None
        return 1
    if row.holder not in (None, holder) and row.expires_at > now and not is_dead(row.holder or ""):
        return None
    row.token += 1
    row.holder, row.expires_at, row.endpoint = holder, now + ttl, endpoint
    row.cluster_reachable, row.cluster_message = None, ""
    session.flush()
    return row.token


def renew(session: Session, token: int, *, now: datetime, ttl: timedelta, name: str = LEADER) -> None:
    """Moves the end of the lease. LeadershipLostError when another has taken it."""
    _change(session, name, token, {"expires_at": now + ttl})


def release(session: Session, token: int, *, now: datetime, name: str = LEADER) -> None:
    """Gives the lease back, so that another may take it at once. The token stays: it only ever grows."""
    _change(session, name, token, {"holder": None, "expires_at": now, "endpoint": None})


def hold(session: Session, token: int, *, alone: bool = False, name: str = LEADER) -> None:
    """First statement of every write transaction of a controller: fails when the token is not the newest one.

    The shared lock keeps another controller from taking the lease before this transaction has ended; `alone`: it also
    waits for every other transaction of this one, and they for it.
    """
    current = session.scalar(select(Lease.token).where(Lease.name == name).with_for_update(read=not alone))
    if current != token:
        raise LeadershipLostError(token, current)


def report_cluster(
    session: Session, token: int, *, reachable: bool, message: str, name: str = LEADER
) -> None:
    """Whether the holder reaches the cluster, for the API to show."""
    _change(session, name, token, {"cluster_reachable": reachable, "cluster_message": message})


def report_queue(session: Session, token: int, queue: Mapping[str, Any], *, name: str = LEADER) -> None:
    """The policy by which the holder decides, and what the projects used, for the API to show."""
    _change(session, name, token, {"queue": dict(queue)})


def _change(session: Session, name: str, token: int, values: dict[str, object]) -> None:
    changed = session.execute(update(Lease).where(Lease.name == name, Lease.token == token).values(**values))
    if not changed.rowcount:  # type: ignore[attr-defined]
        current = session.scalar(select(Lease.token).where(Lease.name == name))
        raise LeadershipLostError(token, current)


def current(session: Session, *, name: str = LEADER) -> LeaseState | None:
    """The lease as it is; None when no controller has ever run."""
    row = session.get(Lease, name, populate_existing=True)
    if row is None:
        return None
    return LeaseState(
        token=row.token,
        holder=row.holder,
        expires_at=row.expires_at,
        endpoint=row.endpoint,
        cluster_reachable=row.cluster_reachable,
        cluster_message=row.cluster_message,
        queue=row.queue,
    )
