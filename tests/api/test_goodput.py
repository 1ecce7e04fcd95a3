"""Goodput over HTTP: from what the store holds to a sum that is the whole."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from orchestrator.lifecycle.reports import EventKind, StepRecord
from orchestrator.store import events, metrics
from orchestrator.store.tables import Job

COST = {
    "phases_s": {"data": 1.0, "forward": 3.0, "checkpoint": 0.5},
    "exposed_s": {"dp": 1.5, "tp": 0.25, "pp": 0.75},
}


@pytest.fixture
def job(app: FastAPI, submit: Callable[..., str]) -> str:
    """20 s in the queue, 10 s of start, two steps of 10 s, over after 50 s."""
    job_id = submit()
    with app.state.database.write() as session:
        row = session.get(Job, job_id)
        begin: datetime = row.created_at
        for after_s, kind in (
            (20, EventKind.PLACED),
            (30, EventKind.TRAINING_STARTED),
            (50, EventKind.ATTEMPT_ENDED),
        ):
            events.append(session, job_id, kind, "said", at=begin + timedelta(seconds=after_s), attempt=1)
        at = begin.timestamp()
        steps = [StepRecord(i, at + 30 + 10 * i, 1, i, 2.0, 1.0, 1e-3, 100, 10.0, 10.0, COST) for i in (1, 2)]
        metrics.append(session, job_id, 1, steps)
        row.finished_at = begin + timedelta(seconds=50)
    return job_id


def test_classes_add_up_to_the_whole(client: TestClient, job: str) -> None:
    found = client.get(f"/api/v1/jobs/{job}/goodput").json()
    gpus = found["gpus"]
    assert found["total_gpu_seconds"] == pytest.approx(50 * gpus, abs=1e-6)
    assert sum(found["gpu_seconds"].values()) == pytest.approx(50 * gpus, abs=1e-6)
    assert {name: s / gpus for name, s in found["gpu_seconds"].items() if s} == pytest.approx(
        {
            "queued": 20,
            "start": 10,
            "data-wait": 2,
            "checkpoint-stall": 1,
            "bubble": 1.5,
            "exposed-communication": 3.5,
            "useful-compute": 12,
        },
        abs=1e-4,
    )
    assert found["goodput"] == pytest.approx(12 / 50, abs=1e-5)


def test_a_job_in_the_queue_has_waited_all_its_time(client: TestClient, submit: Callable[..., str]) -> None:
    found = client.get(f"/api/v1/jobs/{submit()}/goodput").json()
    assert found["gpu_seconds"]["queued"] == found["total_gpu_seconds"] > 0


def test_no_such_job(client: TestClient) -> None:
    assert client.get("/api/v1/jobs/019a0000-0000-7000-8000-000000000000/goodput").status_code == 404
