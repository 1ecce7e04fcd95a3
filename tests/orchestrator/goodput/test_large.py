"""Ten thousand jobs with a million steps, and one job with a million: a bounded number of statements and rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uuid6
from sqlalchemy import event, insert
from sqlalchemy.orm import Session

from orchestrator.goodput.classes import Spent, together
from orchestrator.goodput.cluster import totals
from orchestrator.goodput.ledger import ledger
from orchestrator.goodput.stored import JOBS, history_of
from orchestrator.goodput.stretch import STEPS
from orchestrator.lifecycle.reports import EventKind
from orchestrator.store import jobs
from orchestrator.store.engine import Database
from orchestrator.store.tables import Event, Job, Placement, StepStretch

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
COUNT = 10_000
PROJECTS = 8
STEPS_EACH = 100
LONG = 1_000_000

pytestmark = pytest.mark.slow  # a minute on PostgreSQL; the same code with few jobs: test_stored.py


def job_row(begin: datetime, took_s: float, project: str) -> dict[str, Any]:
    return {
        "id": str(uuid6.uuid7()),
        "name": "j",
        "state": "succeeded",
        "reason": "completed",
        "message": "",
        "project": project,
        "world_size": 8,
        "plan": "dp8",
        "total_steps": STEPS_EACH,
        "created_at": begin,
        "finished_at": begin + timedelta(seconds=took_s),
        "fingerprint": "",
        "spec": {},
    }


def placement_row(job_id: str, begin: datetime, end: datetime) -> dict[str, Any]:
    empty: dict[str, Any] = {name: [] for name in ("nodes", "axes", "explanation", "ranks")}
    numbers = dict.fromkeys(("first_attempt", "restarts_used", "deaths_step", "deaths_count"), 0)
    slots = [["n0", i] for i in range(8)]
    times = {"placed_at": begin, "released_at": end}
    return {"job_id": job_id, "incarnation": 1, "slots": slots, **empty, **numbers, **times}


def event_row(job_id: str, number: int, kind: EventKind, at: datetime) -> dict[str, Any]:
    row = {"job_id": job_id, "id": number, "at": at, "kind": kind.value, "attempt": 1}
    return row | {"incarnation": 1, "seq": number, "message": "said", "data": {"step": 1}}


def stretch_rows(job_id: str, begin: datetime, steps: int) -> Iterator[dict[str, Any]]:
    """Steps of a second, a tenth of which is waited for data."""
    base = round(begin.timestamp()) * 1_000_000
    for first in range(1, steps + 1, STEPS):
        last = min(first + STEPS - 1, steps)
        took = (last - first + 1) * 1_000_000
        yield {
            **dict.fromkeys(("communication_us", "bubble_us", "checkpoint_us"), 0),
            "job_id": job_id,
            "attempt": 1,
            "first_id": first,
            "last_id": last,
            "first_step": first,
            "last_step": last,
            "first_end_us": base + first * 1_000_000,
            "first_us": 1_000_000,
            "end_us": base + last * 1_000_000,
            "data_us": took // 10,
            **dict.fromkeys(("steps_us", "waits_known_us", "phases_known_us"), took),
        }


def store(session: Session, begin: datetime, steps: int, project: str) -> str:
    """Waits 10 s, starts in 20 s, trains; ends 5 s after its last step."""
    took_s = 35.0 + steps
    job = job_row(begin, took_s, project)
    job_id: str = job["id"]
    session.execute(insert(Job), [job])
    end = begin + timedelta(seconds=took_s)
    session.execute(insert(Placement), [placement_row(job_id, begin + timedelta(seconds=10), end)])
    told = ((30, EventKind.TRAINING_STARTED), (30 + steps, EventKind.ATTEMPT_ENDED))
    rows = [event_row(job_id, i, kind, begin + timedelta(seconds=s)) for i, (s, kind) in enumerate(told, 1)]
    session.execute(insert(Event), rows)
    session.execute(insert(StepStretch), list(stretch_rows(job_id, begin + timedelta(seconds=30), steps)))
    return job_id


@pytest.mark.timeout(600)
def test_totals_of_ten_thousand_jobs(database: Database) -> None:
    with database.write() as session:
        for i in range(COUNT):
            store(session, BEGIN + timedelta(seconds=i), STEPS_EACH, f"p{i % PROJECTS}")
    statements: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
    began = time.monotonic()
    with database.read() as session:
        found = totals(session, BEGIN, BEGIN + timedelta(days=1), now=BEGIN + timedelta(days=1))
    print(f"{COUNT} jobs: {time.monotonic() - began:.2f} s, {len(statements)} statements")
    assert len(statements) <= 6 * (COUNT // JOBS) + 10
    assert [one.jobs for one in found.values()] == [COUNT // PROJECTS] * PROJECTS
    whole = together(one.ledger for one in found.values())
    per_job = {spent: gpu_us / COUNT / 8e6 for spent, gpu_us in whole.gpu_us.items() if gpu_us}
    assert per_job == {
        Spent.QUEUED: 10,
        Spent.START: 25,
        Spent.DATA_WAIT: STEPS_EACH / 10,
        Spent.USEFUL_COMPUTE: STEPS_EACH * 0.9,
    }


@pytest.mark.timeout(600)
def test_a_job_of_a_million_steps(database: Database) -> None:
    with database.write() as session:
        job_id = store(session, BEGIN, LONG, "default")
    began = time.monotonic()
    with database.read() as session:
        history = history_of(session, jobs.get(session, job_id), now=BEGIN)
        found = ledger(history)
    print(f"{LONG} steps: {time.monotonic() - began:.2f} s, {len(history.stretches)} rows")
    assert len(history.stretches) == LONG // STEPS
    assert found.gpu_us[Spent.USEFUL_COMPUTE] == pytest.approx(8e6 * LONG * 0.9)
