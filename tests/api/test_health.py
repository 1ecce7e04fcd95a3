"""Health over HTTP: findings, the heat map, blame."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.heat import HeatBlock
from orchestrator.lifecycle.reports import HealthReport
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store import attempts, health, jobs

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
SAID = "Rank 5 on node n2 computes 1.31 times as long as its peers since step 120; costs 0.08 s a step."
SLOW = Finding(
    attempt=1,
    category=Category.STRAGGLER,
    kind="onset",
    subject="rank 5",
    ranks=(5,),
    nodes=("n2",),
    from_step=120,
    to_step=219,
    factor=1.31,
    cost_s=8.0,
    step_cost_s=0.08,
    confidence=0.95,
    ongoing=True,
    clock=Clock.WALL,
    sentence=SAID,
)
BLOCK = HeatBlock(1, 0, 2, 1, ((1, 1, 1), (2, 5, 4)), (0.1, 0.2, 0.3), ("AAAA", "BBBB", "CCCC"))


@pytest.fixture
def job(app: FastAPI, submit: Callable[..., str]) -> str:
    job_id = submit()
    with app.state.database.write() as session:
        report = HealthReport(1, Clock.WALL, (SLOW,), (BLOCK,))
        health.keep(session, job_id, report, at=NOW)
    return job_id


def test_findings(client: TestClient, job: str) -> None:
    found = client.get(f"/api/v1/jobs/{job}/health").json()
    (one,) = found.pop("findings")
    assert found == {"policy": "observe", "healthy": False, "heatmap_attempts": [1]}
    assert one["sentence"] == SAID
    assert (one["ranks"], one["nodes"], one["factor"], one["ongoing"]) == ([5], ["n2"], 1.31, True)
    assert client.get(f"/api/v1/jobs/{job}/health", params={"attempt": 2}).json()["findings"] == []


def test_what_an_attempt_left_open_is_not_slow_now(app: FastAPI, client: TestClient, job: str) -> None:
    def told() -> tuple[bool, bool]:
        found = client.get(f"/api/v1/jobs/{job}/health").json()
        return found["healthy"], found["findings"][0]["ongoing"]

    assert told() == (False, True)
    with app.state.database.write() as session:
        for number in (1, 2):
            attempts.start(session, job, number, incarnation=1, at=NOW)
    assert told() == (True, False)


def test_nothing_is_slow_now_in_a_job_that_ended(app: FastAPI, client: TestClient, job: str) -> None:
    with app.state.database.write() as session:
        jobs.set_state(session, job, JobState.SUCCEEDED, Reason.COMPLETED, "", now=NOW)
    found = client.get(f"/api/v1/jobs/{job}/health").json()
    assert (found["healthy"], found["findings"][0]["ongoing"]) == (True, False)


def test_the_heat_map(client: TestClient, job: str) -> None:
    found = client.get(f"/api/v1/jobs/{job}/health/heatmap").json()
    assert found == {
        "attempt": 1,
        "ranks": 2,
        "ranks_a_row": 1,
        "blocks": [
            {
                "columns": [[1, 1, 1], [2, 5, 4]],
                "scale_s": {"compute": 0.1, "slowest": 0.2, "wait": 0.3},
                "cells": {"compute": "AAAA", "slowest": "BBBB", "wait": "CCCC"},
            }
        ],
    }


def test_a_job_of_which_nothing_is_known(client: TestClient, submit: Callable[..., str]) -> None:
    job_id = submit()
    assert client.get(f"/api/v1/jobs/{job_id}/health").json() == {
        "policy": "observe",
        "healthy": True,
        "heatmap_attempts": [],
        "findings": [],
    }
    found = client.get(f"/api/v1/jobs/{job_id}/health/heatmap").json()
    assert (found["attempt"], found["blocks"]) == (None, [])
    unknown = "0190a5c0-0000-7000-8000-000000000000"
    for path in ("health", "health/heatmap"):
        assert client.get(f"/api/v1/jobs/{unknown}/{path}").status_code == 404


def test_blame(client: TestClient, job: str) -> None:
    assert client.get("/api/v1/blame").json()["items"] == [
        {"node": "n2", "attempts": 1, "jobs": 1, "cost_s": 8.0, "newest": SAID}
    ]
