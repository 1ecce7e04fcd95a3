"""Server-sent events against a real server: history, what comes later, going on after a break, and the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from api import events as event_streams
from orchestrator.lifecycle.reports import EventKind, StepRecord
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store import events, jobs, metrics
from tests.api.conftest import job_file

DEADLINE_S = 60.0


@dataclass(frozen=True)
class Received:
    event: str
    id: str | None
    data: dict[str, Any]


def _events(lines: Iterator[str]) -> Iterator[Received]:
    """The events in the lines of a stream (WHATWG HTML, 9.2.6); comments and lone fields are passed over."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        elif "data" in fields:
            yield Received(fields.get("event", "message"), fields.get("id"), json.loads(fields["data"]))
            fields = {}


@pytest.fixture
def job(http: httpx2.Client) -> str:
    return str(http.post("/api/v1/jobs", json=job_file()).json()["id"])


def _add_events(app: FastAPI, job: str, count: int) -> None:
    for _ in range(count):
        with app.state.database.write() as session:
            events.append(session, job, EventKind.QUEUED, "waits", at=datetime.now(UTC))


def _finish(app: FastAPI, job: str) -> None:
    with app.state.database.write() as session:
        jobs.set_state(session, job, JobState.SUCCEEDED, Reason.COMPLETED, "", now=datetime.now(UTC))


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {DEADLINE_S} s"
        threading.Event().wait(0.02)


def test_history_then_new_ones_then_the_end(app: FastAPI, http: httpx2.Client, job: str) -> None:
    _add_events(app, job, 3)
    with http.stream("GET", f"/api/v1/jobs/{job}/events/stream") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        stream = _events(answer.iter_lines())
        assert [next(stream).id for _ in range(4)] == ["1", "2", "3", "4"]
        _add_events(app, job, 1)
        later = next(stream)
        assert (later.id, later.event, later.data["kind"]) == ("5", "job-event", "queued")
        _finish(app, job)
        assert next(stream).data["kind"] == "state-changed"
        assert next(stream) == Received("end", None, {"state": "succeeded"})
        assert list(stream) == []


def test_goes_on_exactly_after_every_break(app: FastAPI, http: httpx2.Client, job: str) -> None:
    """Breaks the stream behind each event in turn; together the pieces are the history, each event once."""
    writer = threading.Thread(target=_add_events, args=(app, job, 25))
    writer.start()
    seen: list[str] = []
    try:
        while len(seen) < 26:
            headers = {"Last-Event-ID": seen[-1]} if seen else {}
            with http.stream("GET", f"/api/v1/jobs/{job}/events/stream", headers=headers) as answer:
                for _, received in zip(range(4), _events(answer.iter_lines()), strict=False):
                    assert received.id is not None
                    seen.append(received.id)
                    if len(seen) == 26:
                        break
    finally:
        writer.join()
    assert seen == [str(number) for number in range(1, 27)]


def test_last_event_id_wins_over_after(app: FastAPI, http: httpx2.Client, job: str) -> None:
    _add_events(app, job, 4)
    _finish(app, job)
    path = f"/api/v1/jobs/{job}/events/stream?after=1"
    with http.stream("GET", path) as answer:
        assert next(_events(answer.iter_lines())).id == "2"
    with http.stream("GET", path, headers={"Last-Event-ID": "3"}) as answer:
        assert next(_events(answer.iter_lines())).id == "4"


def _step(number: int) -> StepRecord:
    return StepRecord(
        seq=number,
        at=1_790_000_000.0 + number,
        attempt=1,
        step=number,
        loss=float("nan") if number == 3 else 5.0 / number,
        grad_norm=1.0,
        learning_rate=1e-3,
        tokens=2048,
        step_time_s=0.25,
        tokens_per_s=8192.0,
    )


def _add_steps(app: FastAPI, job: str, first: int, last: int) -> None:
    with app.state.database.write() as session:
        metrics.append(session, job, 1, [_step(n) for n in range(first, last + 1)])


def test_metrics_in_pages_thinned_and_live(app: FastAPI, http: httpx2.Client, job: str) -> None:
    _add_steps(app, job, 1, 1200)
    page = http.get(f"/api/v1/jobs/{job}/metrics?limit=500").json()
    assert [m["step"] for m in page["items"]] == list(range(1, 501))
    assert page["next_cursor"] == 500
    assert page["items"][2]["loss"] is None
    thinned = http.get(f"/api/v1/jobs/{job}/metrics?points=100").json()
    assert [m["step"] for m in thinned["items"]] == list(range(12, 1201, 12))
    few = http.get(f"/api/v1/jobs/{job}/metrics?points=100&after=1150").json()
    assert [m["step"] for m in few["items"]] == list(range(1151, 1201))
    odd = http.get(f"/api/v1/jobs/{job}/metrics?points=7").json()["items"]
    assert len(odd) <= 7
    assert odd[-1]["step"] == 1200
    with http.stream("GET", f"/api/v1/jobs/{job}/metrics/stream?after=1199") as answer:
        stream = _events(answer.iter_lines())
        assert next(stream).data["step"] == 1200
        _add_steps(app, job, 1201, 1201)
        received = next(stream)
        assert (received.id, received.event, received.data["tokens"]) == ("1201", "metric", 2048)


def test_long_history_of_a_finished_job(app: FastAPI, http: httpx2.Client, job: str) -> None:
    """More than two batches, and the job is over already: nothing may be cut off by the end."""
    _add_steps(app, job, 1, 1100)
    _finish(app, job)
    with http.stream("GET", f"/api/v1/jobs/{job}/metrics/stream") as answer:
        received = list(_events(answer.iter_lines()))
    assert [r.id for r in received[:-1]] == [str(n) for n in range(1, 1101)]
    assert received[-1].event == "end"


def test_silence_is_kept_alive(monkeypatch: pytest.MonkeyPatch, http: httpx2.Client, job: str) -> None:
    monkeypatch.setattr(event_streams, "HEARTBEAT_S", 0.0)
    with http.stream("GET", f"/api/v1/jobs/{job}/events/stream?after=1") as answer:
        comments = (line for line in answer.iter_lines() if line.startswith(":"))
        assert [next(comments), next(comments)] == [": atoll", ": still here"]


def test_streams_are_counted_and_bounded(app: FastAPI, http: httpx2.Client, job: str) -> None:
    app.state.stream_slots.limit = 2
    path = f"/api/v1/jobs/{job}/events/stream"
    with http.stream("GET", path) as one, http.stream("GET", path) as two:
        open_streams = one.iter_lines(), two.iter_lines()  # kept: a dropped iterator closes its stream
        assert all(next(stream) for stream in open_streams)
        assert app.state.stream_slots.open == 2
        third = http.get(path)
        assert third.status_code == 503
        assert third.headers["retry-after"]
        assert third.json()["type"] == "urn:atoll:problem:too-many-streams"
    _wait(lambda: app.state.stream_slots.open == 0, "the end of the two streams")
    assert http.get(f"/api/v1/jobs/{job[:-1]}/events/stream").status_code == 404
    _wait(lambda: app.state.stream_slots.open == 0, "giving back the slot of a stream that never was")


def test_streams_hold_no_connection_between_polls(app: FastAPI, http: httpx2.Client, job: str) -> None:
    pool = app.state.database.engine.pool
    with http.stream("GET", f"/api/v1/jobs/{job}/events/stream") as answer:
        assert next(_events(answer.iter_lines())).id == "1"
        _wait(lambda: pool.checkedout() == 0, "giving back the connection")
