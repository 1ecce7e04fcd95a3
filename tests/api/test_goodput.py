"""Goodput over HTTP: from what the store holds to sums that are what was held and waited for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.goodput_metrics import OTHERS, PROJECTS, few
from orchestrator.goodput.classes import Ledger, Spent
from orchestrator.lifecycle.reports import EventKind, StepRecord
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.placement import Placement
from orchestrator.store import events, jobs, metrics, placements
from orchestrator.store.tables import Job
from orchestrator.topology.fabric import Fabric, Node, Slot

COST = {
    "phases_s": {"data": 1.0, "forward": 3.0, "checkpoint": 0.5},
    "exposed_s": {"dp": 1.5, "tp": 0.25, "pp": 0.75},
}


@pytest.fixture
def job(app: FastAPI, submit: Callable[..., str]) -> str:
    """Begun an hour and 40 s ago: 20 s in the queue, 10 s of start, two steps of 10 s, a rank dies in the third after
    5 s and the job fails, over after 60 s, slots free after 61 s. No checkpoint."""
    job_id = submit(queue={"project": "vision"})
    with app.state.database.write() as session:
        row = session.get(Job, job_id)
        begin: datetime = datetime.now(UTC) - timedelta(seconds=3640)
        row.created_at = begin
        session.flush()
        placement = Placement((Slot("n0", 0),), (), ())
        placements.insert(
            session,
            job_id,
            1,
            placement,
            Fabric((Node("n0", 1),)),
            first_attempt=1,
            restarts_used=0,
            deaths_at_step=(0, 0),
            now=begin + timedelta(seconds=20),
        )
        placements.release(session, job_id, 1, now=begin + timedelta(seconds=61))
        for after_s, kind, data in (
            (30, EventKind.TRAINING_STARTED, {}),
            (55, EventKind.RANK_DIED, {"step": 2}),
            (56, EventKind.ATTEMPT_ENDED, {"outcome": "signal"}),
            (58, EventKind.FINISHED, {"outcome": "failed"}),
        ):
            when = begin + timedelta(seconds=after_s)
            events.append(session, job_id, kind, "said\nTraceback", at=when, attempt=1, data=data)
        at = begin.timestamp()
        steps = [StepRecord(i, at + 30 + 10 * i, 1, i, 2.0, 1.0, 1e-3, 100, 10.0, 10.0, COST) for i in (1, 2)]
        metrics.append(session, job_id, 1, steps)
        jobs.set_state(
            session, job_id, JobState.FAILED, Reason.RANK_DIED, "", now=begin + timedelta(seconds=60)
        )
    return job_id


def spent(found: dict[str, float | None]) -> dict[str, float]:
    return {name: seconds for name, seconds in found.items() if seconds}


def test_classes_add_up_to_what_was_held_and_waited_for(client: TestClient, job: str) -> None:
    """Nothing is left of the steps of a job that failed without a checkpoint."""
    found = client.get(f"/api/v1/jobs/{job}/goodput").json()
    assert spent(found["gpu_seconds"]) == pytest.approx(
        {"queued": 20, "start": 10 + 5, "lost-work": 20 + 5, "detection": 1}, abs=1e-3
    )
    assert (found["held_gpu_seconds"], found["total_gpu_seconds"]) == pytest.approx((41, 61), abs=1e-6)
    assert (found["gpus"], found["goodput"], found["ettr"]) == (1, 0, 0)
    (repair,) = found["repairs"]
    assert (repair["fault"], repair["message"], repair["given_up"]) == ("rank-died", "said", True)
    assert repair["seconds"] == pytest.approx({"unnoticed": 5, "settling": 1}, abs=1e-3)


def test_waits_of_steps_that_count(app: FastAPI, client: TestClient, job: str) -> None:
    with app.state.database.write() as session:
        session.get(Job, job).state = JobState.SUCCEEDED.value
    found = client.get(f"/api/v1/jobs/{job}/goodput").json()
    waits = {"data-wait": 2, "checkpoint-stall": 1, "bubble": 1.5, "exposed-communication": 3.5}
    assert {name: found["gpu_seconds"][name] for name in waits} == pytest.approx(waits, abs=1e-3)
    assert found["goodput"] == pytest.approx(12 / 41, abs=1e-4)
    assert found["ettr"] == pytest.approx(19 / 61, abs=1e-4)
    assert found["unmeasured_gpu_seconds"] == {}


def test_all_jobs_by_project(client: TestClient, job: str, submit: Callable[..., str]) -> None:
    submit()
    found = client.get("/api/v1/goodput").json()
    assert found["jobs"] == 2
    assert [project["project"] for project in found["projects"]] == ["default", "vision"]
    assert found["projects"][1]["total_gpu_seconds"] == pytest.approx(61, abs=1e-6)
    assert found["total_gpu_seconds"] == pytest.approx(
        sum(project["total_gpu_seconds"] for project in found["projects"]), abs=1e-6
    )
    hour = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    lately = client.get("/api/v1/goodput", params={"since": hour}).json()
    vision = next(project for project in lately["projects"] if project["project"] == "vision")
    assert vision["total_gpu_seconds"] == pytest.approx(21, abs=1.0)  # the last 21 s of it


def test_times_of_no_length_are_refused(client: TestClient) -> None:
    for times in (
        {"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": "9000-01-01T00:00:00Z"},
    ):
        answer = client.get("/api/v1/goodput", params=times)
        assert answer.status_code == 422
        assert "must lie before `until`" in answer.json()["detail"]


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-12:00", "0001-01-01", "yesterday"]
)
def test_times_that_no_calendar_has_are_refused(client: TestClient, at: str) -> None:
    for name in ("since", "until"):
        assert client.get("/api/v1/goodput", params={name: at}).status_code == 422


def test_prometheus_has_the_last_hour_by_project(client: TestClient, job: str) -> None:
    scraped = client.get("/metrics").text
    prefix = 'atoll_gpu_seconds_last_hour{class="start",project="vision"} '
    (line,) = [line for line in scraped.splitlines() if line.startswith(prefix)]
    assert 4 < float(line.removeprefix(prefix)) < 16


def test_labels_have_few_values() -> None:
    every = {f"p{i:02d}": Ledger({Spent.QUEUED: i}) for i in range(PROJECTS + 5)}
    found = few(every)
    assert len(found) == PROJECTS + 1
    assert found[OTHERS].total_us == 0 + 1 + 2 + 3 + 4
    assert few({"a": Ledger({})}).keys() == {"a"}


def test_a_job_in_the_queue_has_waited_all_its_time(client: TestClient, submit: Callable[..., str]) -> None:
    found = client.get(f"/api/v1/jobs/{submit()}/goodput").json()
    assert found["gpu_seconds"]["queued"] == found["total_gpu_seconds"] > 0


def test_no_such_job(client: TestClient) -> None:
    assert client.get("/api/v1/jobs/019a0000-0000-7000-8000-000000000000/goodput").status_code == 404
