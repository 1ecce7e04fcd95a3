"""Logs from both places: a controller that answers over its private endpoint, and the copies kept in SQL."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from api.rank_logs import whole_characters
from orchestrator.lifecycle.reports import LogTail
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.placement import Placement
from orchestrator.store import attempts, jobs, leases, logs, placements
from orchestrator.topology.fabric import Fabric, Node, Slot
from tests.api.conftest import job_file
from tests.api.test_streams import _events

Submit = Callable[..., str]


class FakeController:
    """The controller's private endpoint over real HTTP: `files[(attempt, rank)]` are the logs of living ranks."""

    def __init__(self) -> None:
        self.files: dict[tuple[int, int], bytes] = {}
        self.status = 200
        self.requests: list[dict[str, Any]] = []
        controller = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = controller.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        query = {name: int(values[0]) for name, values in parse_qs(urlsplit(path).query).items()}
        self.requests.append({"path": urlsplit(path).path, "authorization": authorization, **query})
        if authorization != "Bearer internal":
            return 401, b""
        if self.status != 200:
            return self.status, b""
        living = [attempt for attempt, rank in self.files if rank == query["rank"]]
        attempt = query.get("attempt", max(living, default=0))
        content = self.files.get((attempt, query["rank"]))
        if content is None:
            if not living:
                return 404, b""
            content = b""  # the file of a gang that lives is not there yet
        offset = query["offset"]
        offset = max(0, len(content) + offset) if offset < 0 else min(offset, len(content))
        data = content[offset : offset + query["limit"]]
        body = {
            "attempt": attempt,
            "rank": query["rank"],
            "offset": offset,
            "size": len(content),
            "data_base64": base64.b64encode(data).decode(),
        }
        return 200, json.dumps(body).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def controller(app: FastAPI) -> Iterator[FakeController]:
    """A controller that holds the lease."""
    fake = FakeController()
    with app.state.database.write() as session:
        leases.acquire(session, "fake", now=datetime.now(UTC), ttl=timedelta(hours=1), endpoint=fake.endpoint)
    yield fake
    fake.close()


def _start(app: FastAPI, job: str, attempt: int = 1) -> None:
    """The job runs with two ranks."""
    now = datetime.now(UTC)
    slots = (Slot("n0", 0), Slot("n0", 1))
    with app.state.database.write() as session:
        if attempt == 1:
            placements.insert(
                session,
                job,
                1,
                Placement(slots, ()),
                Fabric((Node("n0", 2),)),
                first_attempt=1,
                restarts_used=0,
                deaths_at_step=(0, 0),
                now=now,
            )
            jobs.set_state(session, job, JobState.RUNNING, Reason.NONE, "", now=now)
        attempts.start(session, job, attempt, incarnation=1, at=now)


def _end(app: FastAPI, job: str, tails: list[LogTail]) -> None:
    now = datetime.now(UTC)
    with app.state.database.write() as session:
        logs.keep(session, job, tails)
        placements.end(session, job, 1, now=now)
        jobs.set_state(session, job, JobState.SUCCEEDED, Reason.COMPLETED, "", now=now)


def test_an_attempt_that_never_was_has_no_log(
    app: FastAPI, client: TestClient, controller: FakeController, submit: Submit
) -> None:
    job = submit()
    _start(app, job)
    controller.files[1, 0] = b"step 1\n"
    never = client.get(f"/api/v1/jobs/{job}/logs?attempt=99")
    assert (never.status_code, never.headers["content-type"]) == (404, "application/problem+json")
    assert never.json()["detail"] == "Rank 0 of this job has no log in attempt 99 yet."
    assert client.get(f"/api/v1/jobs/{job}/logs/download?attempt=99").status_code == 404
    _start(app, job, attempt=2)
    begun = client.get(f"/api/v1/jobs/{job}/logs?attempt=2")
    assert (begun.status_code, begun.json()["text"], begun.json()["live"]) == (200, "", True)
    controller.files[3, 0] = b"SQL hears of this attempt within a second\n"
    assert client.get(f"/api/v1/jobs/{job}/logs?attempt=3").json()["text"].startswith("SQL hears")


@pytest.fixture
def running(app: FastAPI, client: TestClient, submit: Submit) -> str:
    job = submit(parallelism={"dp": 2})
    _start(app, job)
    return job


def test_live_log_by_parts(client: TestClient, controller: FakeController, running: str) -> None:
    text = "step 1\nstep 2 é🪸\n" * 20
    controller.files[1, 1] = text.encode()
    read, offset = "", 0
    while True:
        part = client.get(f"/api/v1/jobs/{running}/logs?rank=1&offset={offset}&limit=16").json()
        assert (part["rank"], part["attempt"], part["live"], part["size"]) == (1, 1, True, len(text.encode()))
        if not part["text"]:
            break
        assert part["offset"] == offset
        read, offset = read + part["text"], part["next_offset"]
    assert read == text
    assert offset == len(text.encode())
    assert controller.requests[0] == {
        "path": f"/internal/v1/logs/{running}",
        "authorization": "Bearer internal",
        "incarnation": 1,
        "rank": 1,
        "offset": 0,
        "limit": 16,
    }


def test_end_of_a_live_log_by_default(client: TestClient, controller: FakeController, running: str) -> None:
    controller.files[1, 0] = b"x" * 100_000 + b"the end"
    part = client.get(f"/api/v1/jobs/{running}/logs").json()
    assert part["text"].endswith("xthe end")
    assert part["offset"] == 100_007 - 65_536


def test_kept_log_begins_where_it_was_cut(app: FastAPI, client: TestClient, running: str) -> None:
    """The file had 1,000 bytes, of which the last 8 were kept: the first half of a character is not among them."""
    _end(app, running, [LogTail(1, 0, "end é\n!", 1000)])
    part = client.get(f"/api/v1/jobs/{running}/logs?offset=0").json()
    assert (part["text"], part["offset"], part["next_offset"]) == ("end é\n!", 992, 1000)
    assert part["live"] is False
    inside = client.get(f"/api/v1/jobs/{running}/logs?offset=997").json()
    assert (inside["text"], inside["offset"]) == ("\n!", 998)
    behind = client.get(f"/api/v1/jobs/{running}/logs?offset=5000").json()
    assert (behind["text"], behind["next_offset"]) == ("", 1000)


def test_no_log_yet_and_no_such_rank(client: TestClient, controller: FakeController, running: str) -> None:
    none = client.get(f"/api/v1/jobs/{running}/logs?rank=0")
    assert (none.status_code, none.json()["type"]) == (404, "urn:atoll:problem:no-log")
    outside = client.get(f"/api/v1/jobs/{running}/logs?rank=2")
    assert outside.status_code == 422
    assert "ranks 0 to 1" in outside.json()["detail"]
    for path in ("logs/stream?rank=2", "logs/download?rank=2"):
        assert client.get(f"/api/v1/jobs/{running}/{path}").status_code == 422


@pytest.mark.parametrize("status", [401, 500, 503])
def test_controller_that_fails(
    client: TestClient, controller: FakeController, running: str, status: int
) -> None:
    controller.status = status
    answer = client.get(f"/api/v1/jobs/{running}/logs")
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:atoll:problem:live-logs-unavailable"


def test_no_controller(client: TestClient, running: str) -> None:
    answer = client.get(f"/api/v1/jobs/{running}/logs")
    assert answer.status_code == 503
    assert "no controller is running" in answer.json()["detail"]


def test_controller_that_is_gone(client: TestClient, controller: FakeController, running: str) -> None:
    controller.close()
    answer = client.get(f"/api/v1/jobs/{running}/logs")
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["detail"]


def test_earlier_attempt_needs_no_controller(app: FastAPI, client: TestClient, running: str) -> None:
    with app.state.database.write() as session:
        logs.keep(session, running, [LogTail(1, 0, "first life\n", 11)])
    _start(app, running, attempt=2)
    part = client.get(f"/api/v1/jobs/{running}/logs?attempt=1").json()
    assert (part["attempt"], part["text"], part["live"]) == (1, "first life\n", False)


def test_download(client: TestClient, controller: FakeController, running: str) -> None:
    controller.files[1, 0] = "é\n".encode() * 700_000
    answer = client.get(f"/api/v1/jobs/{running}/logs/download?rank=0")
    assert answer.content == controller.files[1, 0]
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="demo-attempt1-rank0.log"'


@pytest.fixture
def served(app: FastAPI, http: httpx2.Client) -> str:
    """A running job, on a real server."""
    job = str(http.post("/api/v1/jobs", json=job_file(parallelism={"dp": 2})).json()["id"])
    _start(app, job)
    return job


def _pieces(http: httpx2.Client, path: str, count: int, **headers: str) -> tuple[list[dict[str, Any]], str]:
    """The first `count` pieces and the id of the last one."""
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        received = [r for _, r in zip(range(count), _events(answer.iter_lines()), strict=False)]
    assert all(r.event == "log" for r in received)
    assert received[-1].id is not None
    return [r.data for r in received], received[-1].id


def test_follows_through_a_repair_to_the_end(
    app: FastAPI, http: httpx2.Client, controller: FakeController, served: str
) -> None:
    """Broken off and gone on twice; together exactly what the ranks wrote, attempt after attempt."""
    path = f"/api/v1/jobs/{served}/logs/stream"
    controller.files |= {(1, 0): b"a0 one\n", (1, 1): b"a1 one\n"}
    first, cursor = _pieces(http, path, 2)
    assert [(p["rank"], p["attempt"], p["text"]) for p in first] == [(0, 1, "a0 one\n"), (1, 1, "a1 one\n")]
    controller.files[1, 0] += b"two\n"
    controller.files |= {(2, 0): b"b0\n", (2, 1): b"b1\n"}
    _start(app, served, attempt=2)
    second, cursor = _pieces(http, path, 2, **{"Last-Event-ID": cursor})
    assert [(p["rank"], p["attempt"], p["offset"], p["text"]) for p in second] == [
        (0, 1, 7, "two\n"),
        (1, 2, 0, "b1\n"),
    ]
    _end(app, served, [LogTail(2, 0, "b0\nlast\n", 8), LogTail(2, 1, "b1\n", 3)])
    with http.stream("GET", path, headers={"Last-Event-ID": cursor}) as answer:
        rest = list(_events(answer.iter_lines()))
    assert [(r.event, r.data.get("rank"), r.data.get("text")) for r in rest] == [
        ("log", 0, "b0\nlast\n"),
        ("end", None, None),
    ]


def test_chosen_rank_and_tail(http: httpx2.Client, controller: FakeController, served: str) -> None:
    controller.files |= {(1, 0): b"zero\n", (1, 1): b"0123456789"}
    pieces, _ = _pieces(http, f"/api/v1/jobs/{served}/logs/stream?rank=1&tail_bytes=4", 1)
    assert pieces == [{"rank": 1, "attempt": 1, "offset": 6, "text": "6789"}]


def test_whole_history(app: FastAPI, http: httpx2.Client, served: str) -> None:
    """From the first attempt on, over one that left no log."""
    for attempt in (2, 3):
        _start(app, served, attempt=attempt)
    _end(app, served, [LogTail(1, 0, "first\n", 6), LogTail(3, 0, "third\n", 6)])
    pieces, _ = _pieces(http, f"/api/v1/jobs/{served}/logs/stream?rank=0&tail_bytes=0", 2)
    assert [(p["attempt"], p["text"]) for p in pieces] == [(1, "first\n"), (3, "third\n")]


def test_stream_says_why_it_stops(http: httpx2.Client, controller: FakeController, served: str) -> None:
    controller.files[1, 0] = b"zero\n"
    with http.stream("GET", f"/api/v1/jobs/{served}/logs/stream?rank=0") as answer:
        stream = _events(answer.iter_lines())
        assert next(stream).data["text"] == "zero\n"
        controller.status = 500
        problem = next(stream)
        assert (problem.event, list(stream)) == ("problem", [])
        assert "controller" in problem.data["detail"]


@pytest.mark.parametrize("cursor", ["", "x", "0=1", "0=1:2:3", "0=-1:2", "0=1:2,", "0=1:" + "9" * 40, "é"])
def test_wrong_cursors(client: TestClient, running: str, cursor: str) -> None:
    headers = {b"Last-Event-ID": cursor.encode()}
    answer = client.get(f"/api/v1/jobs/{running}/logs/stream", headers=headers)
    assert answer.status_code == 422
    assert answer.json()["violations"][0]["field"] == "header.last-event-id"


@given(text=st.text(min_size=1, max_size=40), cut=st.integers(1, 8))
def test_cut_anywhere_text_comes_whole(text: str, cut: int) -> None:
    """Read in parts of any size from 4 bytes, the longest character, nothing is lost, doubled or mangled."""
    content = text.encode()
    size, offset, read = cut + 3, 0, ""
    while offset < len(content):
        start, data = whole_characters(content[offset : offset + size], at_start=offset == 0)
        assert start == 0
        assert data, "a reader must always get on"
        read += data.decode()
        offset += len(data)
    assert read == text


@given(content=st.binary(min_size=1, max_size=40))
def test_bytes_that_are_no_text_do_not_stop_a_reader(content: bytes) -> None:
    offset = 0
    while offset < len(content):
        start, data = whole_characters(content[offset : offset + 8], at_start=offset == 0)
        if offset + 8 >= len(content) and not data:
            break  # the last character is not complete yet: the file may still grow
        assert start + len(data) > 0
        offset += start + len(data)
