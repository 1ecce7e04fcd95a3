"""Timelines over HTTP: the list, one of them, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from orchestrator.lifecycle.reports import EventKind, GangEvent
from orchestrator.store import timelines

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
SPAN = ["forward", 0, 0, 0, 50]


def told(step: int, attempt: int) -> GangEvent:
    totals = {"steps": 1, "busy_us": {"forward": 50}, "own_us": 50}
    rank = {"rank": 0, "start_us": 0, "end_us": 50, "busy_us": {"forward": 50}, "spans": [SPAN]}
    data: dict[str, Any] = {"schedule": "interleaved-1f1b", "pp": 2, "microbatches": 4, "virtual_stages": 2}
    data |= {"step": step, "clock_error_us": None, "window_us": 60, "bubble": 0.2}
    data |= {"ranks": [rank | {"spans_left_out": 0, "totals": totals}]}
    return GangEvent(step, NOW.timestamp(), EventKind.TIMELINE, attempt, "said", data)


@pytest.fixture
def job(app: FastAPI, submit: Callable[..., str]) -> str:
    job_id = submit()
    with app.state.database.write() as session:
        timelines.keep(session, job_id, [told(2, 1), told(50, 1), told(50, 2)])
    return job_id


def test_the_list_is_newest_first_and_light(client: TestClient, job: str) -> None:
    items = client.get(f"/api/v1/jobs/{job}/timelines").json()["items"]
    assert [(item["attempt"], item["step"]) for item in items] == [(2, 50), (1, 50), (1, 2)]
    assert items[0] == {
        "attempt": 2,
        "step": 50,
        "at": "2026-05-04T03:02:01Z",
        "bubble": 0.2,
        "theory": 0.125,  # (p-1)/(v m)
    }


def test_one_timeline(client: TestClient, job: str) -> None:
    path = f"/api/v1/jobs/{job}/timeline"
    newest = client.get(path).json()
    assert (newest["attempt"], newest["step"], newest["clock_error_us"]) == (2, 50, None)
    assert newest["ranks"][0]["spans"] == [SPAN]
    assert client.get(path, params={"step": 50, "attempt": 1}).json()["attempt"] == 1
    assert client.get(path, params={"step": 2}).json()["step"] == 2


def test_what_is_not_kept_is_named_with_what_is(
    client: TestClient, job: str, submit: Callable[..., str]
) -> None:
    answer = client.get(f"/api/v1/jobs/{job}/timeline", params={"step": 7, "attempt": 1})
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:atoll:problem:no-such-timeline")
    said = "No timeline of step 7 is kept in attempt 1; kept are those of steps 2, 50."
    assert answer.json()["detail"] == said
    other = submit()
    assert client.get(f"/api/v1/jobs/{other}/timelines").json() == {"items": []}
    answer = client.get(f"/api/v1/jobs/{other}/timeline")
    assert answer.json()["detail"] == "No timeline is kept; there is none yet."


@pytest.mark.parametrize("which", ["timelines", "timeline"])
def test_an_unknown_job_is_not_found(client: TestClient, which: str) -> None:
    answer = client.get(f"/api/v1/jobs/00000000-0000-0000-0000-000000000000/{which}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:atoll:problem:no-such-job")


@pytest.mark.parametrize("step", ["0", "x", str(2**31)])
def test_a_step_that_is_none_is_refused(client: TestClient, job: str, step: str) -> None:
    answer = client.get(f"/api/v1/jobs/{job}/timeline", params={"step": step})
    assert answer.status_code == 422
    assert "step" in answer.json()["violations"][0]["field"]
