"""Submitting, listing, showing and cancelling, over HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import yaml
from fastapi import FastAPI
from fastapi.testclient import TestClient

from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store import events, jobs
from tests.api.conftest import job_file

Submit = Callable[..., str]


def test_submitted_job_is_there(client: TestClient) -> None:
    answer = client.post("/api/v1/jobs", json=job_file(parallelism={"tp": 2, "dp": 2}))
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{job['id']}"
    assert (job["state"], job["reason"], job["plan"], job["world_size"]) == (
        "queued",
        "waiting-for-controller",
        "tp2 dp2",
        4,
    )
    shown = client.get(answer.headers["location"]).json()
    assert {k: shown[k] for k in job} == job
    assert shown["spec"]["training"]["steps"] == 10
    assert shown["placement"] is None
    history = client.get(f"{answer.headers['location']}/events").json()
    assert [event["kind"] for event in history["items"]] == ["submitted"]


def test_yaml_and_json_make_the_same_job(client: TestClient) -> None:
    document = job_file(training={"steps": 3, "optimizer": {"learning_rate": 0.001}})
    as_json = client.post("/api/v1/jobs", json=document).json()
    as_yaml = client.post(
        "/api/v1/jobs", content=yaml.safe_dump(document), headers={"Content-Type": "application/yaml"}
    )
    assert as_yaml.status_code == 201, as_yaml.text
    specs = [client.get(f"/api/v1/jobs/{j['id']}").json()["spec"] for j in (as_json, as_yaml.json())]
    assert specs[0] == specs[1]


def test_key_makes_a_repeat_harmless(client: TestClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post("/api/v1/jobs", json=job_file(), headers=headers)
    again = client.post("/api/v1/jobs", json=job_file(), headers=headers)
    other = client.post("/api/v1/jobs", json=job_file(name="other"), headers=headers)
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert again.json() == first.json()
    assert other.json()["type"] == "urn:atoll:problem:idempotency-conflict"
    assert len(client.get("/api/v1/jobs").json()["items"]) == 1


def test_key_wins_a_race(client: TestClient) -> None:
    """Four threads leave together with one key, five times over: each time one 201 and one job."""
    for attempt in range(5):
        barrier = threading.Barrier(4)

        def post(
            _: int, key: str = f"race-{attempt}", barrier: threading.Barrier = barrier
        ) -> tuple[int, str]:
            barrier.wait(timeout=60)
            answer = client.post("/api/v1/jobs", json=job_file(), headers={"Idempotency-Key": key})
            return answer.status_code, answer.json()["id"]

        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(post, range(4)))
        assert sorted(status for status, _ in outcomes) == [200, 200, 200, 201]
        assert len({job for _, job in outcomes}) == 1
    assert len(client.get("/api/v1/jobs").json()["items"]) == 5


def test_pages_are_complete_while_jobs_are_added(client: TestClient, submit: Submit) -> None:
    before = [submit(name=f"job-{i}") for i in range(23)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = client.get("/api/v1/jobs", params={"limit": 5} | ({"cursor": cursor} if cursor else {})).json()
        seen += [job["id"] for job in page["items"]]
        submit(name="meanwhile")
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == before[::-1]


def test_last_page_has_no_cursor(client: TestClient, submit: Submit) -> None:
    for _ in range(4):
        submit()
    full = client.get("/api/v1/jobs?limit=2").json()
    last = client.get("/api/v1/jobs", params={"limit": 2, "cursor": full["next_cursor"]}).json()
    assert (len(full["items"]), len(last["items"]), last["next_cursor"]) == (2, 2, None)


def _finish(app: FastAPI, job_id: str, state: JobState = JobState.SUCCEEDED) -> None:
    with app.state.database.write() as session:
        jobs.set_state(session, job_id, state, Reason.COMPLETED, "", now=datetime.now(UTC))


def test_filters(client: TestClient, app: FastAPI, submit: Submit) -> None:
    done, waiting, other = submit(name="llama-a"), submit(name="llama-b"), submit(name="gpt")
    _finish(app, done)

    def ids(query: str) -> list[str]:
        return [job["id"] for job in client.get(f"/api/v1/jobs?{query}").json()["items"]]

    assert ids("state=queued") == [other, waiting]
    assert ids("state=queued&state=succeeded") == [other, waiting, done]
    assert ids("name=llama") == [waiting, done]
    assert ids("name=LLAMA&state=succeeded") == [done]
    assert ids("name=nothing") == []


def test_cancel_is_asked_once(client: TestClient, submit: Submit) -> None:
    job = submit()
    answers = [client.post(f"/api/v1/jobs/{job}/cancel") for _ in range(2)]
    assert [a.status_code for a in answers] == [202, 202]
    assert answers[0].json()["cancel_requested"] is True
    kinds = [e["kind"] for e in client.get(f"/api/v1/jobs/{job}/events").json()["items"]]
    assert kinds == ["submitted", "cancel-requested"]


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
def test_cancel_of_what_is_over(client: TestClient, app: FastAPI, submit: Submit, state: JobState) -> None:
    job = submit()
    _finish(app, job, state)
    answer = client.post(f"/api/v1/jobs/{job}/cancel")
    assert answer.status_code == 409
    assert str(state) in answer.json()["detail"]


def test_event_pages(client: TestClient, app: FastAPI, submit: Submit) -> None:
    job = submit()
    with app.state.database.write() as session:
        for number in range(6):
            events.append(session, job, events.EventKind.QUEUED, f"no {number}", at=datetime.now(UTC))
    first = client.get(f"/api/v1/jobs/{job}/events?limit=4").json()
    rest = client.get(f"/api/v1/jobs/{job}/events?limit=4&after={first['next_cursor']}").json()
    assert [e["id"] for e in first["items"] + rest["items"]] == [1, 2, 3, 4, 5, 6, 7]
    assert rest["next_cursor"] is None
