"""Timelines in the store: the newest few of a job, whatever is sent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.lifecycle.reports import EventKind, GangEvent
from orchestrator.lifecycle.timeline import SPANS_LIMIT, TIMELINES_KEPT
from orchestrator.spec.job import JobSpec
from orchestrator.store import jobs, timelines
from orchestrator.store.engine import Database

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def document(step: int, *, spans: int = 2) -> dict[str, Any]:
    busy = {"forward": 10 * spans}
    rank = {
        "rank": 0,
        "start_us": 0,
        "end_us": 10 * spans,
        "busy_us": busy,
        "spans": [["forward", 0, i, 10 * i, 10 * i + 10] for i in range(spans)],
        "spans_left_out": 0,
        "totals": {"steps": 1, "busy_us": busy, "own_us": 10 * spans},
    }
    plan = {"schedule": "1f1b", "pp": 2, "microbatches": 4, "virtual_stages": 1}
    return plan | {
        "step": step,
        "clock_error_us": 0,
        "window_us": 10 * spans,
        "bubble": 0.3,
        "ranks": [rank],
    }


def told(step: int, attempt: int = 1, **changes: Any) -> GangEvent:
    return GangEvent(step, NOW.timestamp(), EventKind.TIMELINE, attempt, "said", document(step) | changes)


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        return jobs.insert(
            session, JobSpec.model_validate({"name": "j", "training": {"steps": 3}}), now=NOW
        ).job.id


def kept(database: Database, job_id: str) -> list[tuple[int, int]]:
    with database.read() as session:
        return [(row.attempt, row.step) for row in timelines.of_job(session, job_id)]


def test_the_newest_few_are_kept(database: Database, job_id: str) -> None:
    for step in range(1, TIMELINES_KEPT + 6):
        with database.write() as session:
            timelines.keep(session, job_id, [told(step)])
    newest = TIMELINES_KEPT + 5
    assert kept(database, job_id) == [(1, step) for step in range(newest, newest - TIMELINES_KEPT, -1)]
    with database.write() as session:  # a later attempt goes on from an earlier step
        timelines.keep(session, job_id, [told(3, attempt=2)])
    assert kept(database, job_id)[:2] == [(2, 3), (1, newest)]
    assert len(kept(database, job_id)) == TIMELINES_KEPT


def test_a_step_told_again_takes_the_place_of_the_first(database: Database, job_id: str) -> None:
    with database.write() as session:
        timelines.keep(session, job_id, [told(5), told(5, bubble=0.5)])
    with database.read() as session:
        row = timelines.get(session, job_id)
        assert row is not None
        assert (row.step, row.bubble, row.theory) == (5, 0.5, 0.25)  # (p-1)/m
        assert row.data == document(5) | {"bubble": 0.5}


def test_a_step_is_found_in_its_newest_attempt(database: Database, job_id: str) -> None:
    with database.write() as session:
        timelines.keep(session, job_id, [told(5), told(7), told(5, attempt=2)])

    def found(**which: int) -> tuple[int, int] | None:
        with database.read() as session:
            row = timelines.get(session, job_id, **which)
            return None if row is None else (row.attempt, row.step)

    assert found() == (2, 5)
    assert found(step=5, attempt=1) == (1, 5)
    assert found(step=7) == (1, 7)
    assert found(step=6) is None


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"step": 1},
        document(1) | {"step": 2**40},
        document(1) | {"bubble": float("nan")},
        document(1) | {"bubble": float("inf")},
        document(1, spans=SPANS_LIMIT + 1),
        document(1) | {"ranks": [document(1, spans=SPANS_LIMIT // 2)["ranks"][0]] * 3},
    ],
)
def test_what_is_no_timeline_is_not_kept(database: Database, job_id: str, data: dict[str, Any]) -> None:
    with database.write() as session:
        timelines.keep(session, job_id, [GangEvent(1, NOW.timestamp(), EventKind.TIMELINE, 1, "said", data)])
    assert kept(database, job_id) == []
