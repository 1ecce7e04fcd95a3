"""The queue: its order, its reasons, and what the projects have."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from fastapi import FastAPI
from fastapi.testclient import TestClient

from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store import jobs, leases

Submit = Callable[..., str]
POLICY = {
    "starvation_s": 86400.0,
    "half_life_s": 3600.0,
    "reservations": 2,
    "preemption": False,
    "projects": {"vision": {"weight": 2.0, "quota": 4}},
}


def tell(app: FastAPI) -> None:
    """What a controller tells of its policy."""
    now = datetime.now(UTC)
    with app.state.database.write() as session:
        token = leases.acquire(session, "c", now=now, ttl=timedelta(minutes=1), endpoint=None)
        assert token is not None
        leases.report_queue(session, token, {"policy": POLICY, "use": {"vision": 3.0}})


def test_nobody_waits_and_no_controller_has_run(client: TestClient) -> None:
    answer = client.get("/api/v1/queue")
    assert answer.status_code == 200
    assert answer.json() == {"items": [], "total": 0, "projects": [], "policy": None}


def test_jobs_in_the_order_of_the_decisions(app: FastAPI, client: TestClient, submit: Submit) -> None:
    """The share of vision is 3 / 2, that of default 0."""
    vision = submit(name="vision", queue={"project": "vision"})
    plain = submit(name="plain", parallelism={"dp": 2})
    urgent = submit(name="urgent", queue={"priority": 7})
    runs = submit(name="runs")
    tell(app)
    kept = {"size": 1, "nodes": ["n0"], "start_at": "2026-12-01T10:00:00+00:00"}
    with app.state.database.write() as session:
        jobs.set_state(session, runs, JobState.STARTING, Reason.NONE, "", now=datetime.now(UTC))
        jobs.set_state(session, urgent, JobState.QUEUED, Reason.NO_ROOM, "no room", now=datetime.now(UTC))
        jobs.summarise(session, urgent, {"reservation": kept})
    found = client.get("/api/v1/queue").json()
    shown = [(job["position"], job["id"], job["priority"], job["share"]) for job in found["items"]]
    assert shown == [(1, urgent, 7, 0.0), (2, plain, 0, 0.0), (3, vision, 0, 1.5)]
    first = found["items"][0]
    assert (first["reason"], first["message"], first["starved"]) == ("no-room", "no room", False)
    assert first["reservation"] == {"size": 1, "nodes": ["n0"], "start_at": "2026-12-01T10:00:00Z"}
    assert found["items"][1]["reservation"] is None
    assert found["policy"] == {name: POLICY[name] for name in POLICY if name != "projects"}
    vision_project = next(project for project in found["projects"] if project["name"] == "vision")
    assert vision_project == {
        "name": "vision",
        "weight": 2.0,
        "quota": 4,
        "held": 0,
        "use": 3.0,
        "share": 1.5,
        "waiting_jobs": 1,
        "wanted": 1,
    }


def test_pages_go_on_behind_a_position(client: TestClient, submit: Submit) -> None:
    ids = [submit(name=f"job-{number}") for number in range(5)]
    first = client.get("/api/v1/queue", params={"limit": 2}).json()
    second = client.get("/api/v1/queue", params={"limit": 2, "after": 2}).json()
    assert [job["id"] for job in first["items"] + second["items"]] == ids[:4]
    assert (second["total"], second["items"][0]["position"]) == (5, 3)
