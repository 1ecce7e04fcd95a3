"""The client against a server that breaks: retries, streams that reconnect, answers that are none of Atoll's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from atoll import answers
from atoll.client import AtollClient
from atoll.errors import NotAtollError, ProblemError, ServerUnreachableError
from atoll.transport import Backoff

SUMMARY: dict[str, Any] = {
    "id": "01a22e90-11b5-7135-8075-37820129c2be",
    "name": "first",
    "state": "queued",
    "reason": "none",
    "message": "",
    "world_size": 1,
    "plan": "single",
    "step": 0,
    "total_steps": 1,
    "loss": None,
    "tokens_per_s": None,
    "restarts": 0,
    "cancel_requested": False,
    "created_at": "2026-11-30T12:00:00Z",
    "started_at": None,
    "finished_at": None,
}

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakeServer:
    """Answers each request with the next of `script`; the last one again and again."""

    url: str
    script: list[Answer]
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def fake() -> Iterator[Callable[..., FakeServer]]:
    servers: list[ThreadingHTTPServer] = []

    def start(*script: Answer) -> FakeServer:
        state = FakeServer("", list(script))

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                state.requests.append((self.command, self.path, dict(self.headers)))
                step = state.script.pop(0) if len(state.script) > 1 else state.script[0]
                step(self)

            do_GET = do_POST = answer  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        return state

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def sends(status: int, body: bytes, kind: str = "application/json") -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def sends_json(status: int, document: Any) -> Answer:
    return sends(status, json.dumps(document).encode())


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def event(number: int) -> bytes:
    data = {
        "id": number,
        "at": "2026-11-30T12:00:00Z",
        "kind": "submitted",
        "attempt": None,
        "message": "",
        "data": {},
    }
    return f"id: {number}\nevent: job-event\ndata: {json.dumps(data)}\n\n".encode()


END = b'event: end\ndata: {"state": "succeeded"}\n\n'


def streams(*parts: bytes) -> Answer:
    return sends(200, b"".join(parts), "text/event-stream")


def client(server: FakeServer, *, retry_budget_s: float = 20.0) -> AtollClient:
    return AtollClient(server.url, "secret-token", retry_budget_s=retry_budget_s)


def test_a_submission_that_got_no_answer_is_sent_again_under_the_same_key(
    fake: Callable[..., FakeServer],
) -> None:
    server = fake(hangs_up, sends_json(503, {"title": "down"}), sends_json(201, SUMMARY))
    with client(server) as atoll:
        assert atoll.submit({"name": "first"}).name == "first"
    keys = [headers["Idempotency-Key"] for _, _, headers in server.requests]
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_two_submissions_have_two_keys(fake: Callable[..., FakeServer]) -> None:
    server = fake(sends_json(201, SUMMARY))
    with client(server) as atoll:
        atoll.submit({"name": "first"})
        atoll.submit({"name": "first"})
    assert len({headers["Idempotency-Key"] for _, _, headers in server.requests}) == 2


def test_the_token_goes_along(fake: Callable[..., FakeServer]) -> None:
    server = fake(sends_json(200, SUMMARY | {"items": [], "next_cursor": None}))
    with client(server) as atoll:
        atoll.jobs()
    assert server.requests[0][2]["Authorization"] == "Bearer secret-token"


def test_retries_end_with_the_budget(fake: Callable[..., FakeServer]) -> None:
    server = fake(hangs_up)
    with (
        client(server, retry_budget_s=1.0) as atoll,
        pytest.raises(ServerUnreachableError, match="no answer"),
    ):
        atoll.jobs()
    assert 2 <= len(server.requests) <= 6


def test_a_refusal_is_not_retried_and_carries_every_violation(fake: Callable[..., FakeServer]) -> None:
    problem = {
        "type": "urn:atoll:problem:invalid-job",
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "two things",
        "violations": [
            {"field": "name", "value": "A", "message": "lower case"},
            {"field": "training.steps", "value": None, "message": "missing"},
        ],
    }
    server = fake(sends(422, json.dumps(problem).encode(), "application/problem+json"))
    with client(server) as atoll, pytest.raises(ProblemError) as refused:
        atoll.submit({"name": "A"})
    assert refused.value.status == 422
    assert [violation.field for violation in refused.value.violations] == ["name", "training.steps"]
    assert len(server.requests) == 1


def test_a_broken_stream_goes_on_where_it_broke(fake: Callable[..., FakeServer]) -> None:
    server = fake(
        streams(event(4), event(5)),  # ends without `end`
        hangs_up,
        streams(
            b": comment\n\n", event(6), b'id: 7\nevent: job-event\ndata: {"id": 7, "at"'
        ),  # cut inside an event
        streams(event(7), END),
    )
    with client(server) as atoll:
        assert [found.id for found in atoll.follow_events("x", after=3)] == [4, 5, 6, 7]
    assert [headers["Last-Event-ID"] for _, _, headers in server.requests] == ["3", "5", "5", "6"]


def test_a_stream_that_never_comes_back_gives_up(fake: Callable[..., FakeServer]) -> None:
    server = fake(streams(event(1)), hangs_up)
    with client(server, retry_budget_s=1.0) as atoll:
        found = atoll.follow_events("x")
        assert next(found).id == 1
        with pytest.raises(ServerUnreachableError):
            next(found)


def test_a_stream_of_a_job_that_is_not_there(fake: Callable[..., FakeServer]) -> None:
    server = fake(sends(404, b'{"status": 404, "detail": "no job"}', "application/problem+json"))
    with client(server) as atoll, pytest.raises(ProblemError, match="no job"):
        next(atoll.follow_events("x"))


@pytest.mark.parametrize(
    "answer",
    [
        sends(200, b"<html>hello</html>", "text/html"),
        sends(200, b"{broken", "application/json"),
        sends_json(200, {"unexpected": 1}),
        sends_json(200, [1, 2]),
        sends(302, b"", "text/html"),
    ],
)
def test_something_else_answers(fake: Callable[..., FakeServer], answer: Answer) -> None:
    with client(fake(answer)) as atoll, pytest.raises(NotAtollError):
        atoll.jobs()


def test_a_page_instead_of_a_stream(fake: Callable[..., FakeServer]) -> None:
    with client(fake(sends(200, b"<html>", "text/html"))) as atoll, pytest.raises(NotAtollError):
        next(atoll.follow_events("x"))


def test_unknown_fields_of_a_newer_server_are_ignored(fake: Callable[..., FakeServer]) -> None:
    server = fake(sends_json(201, SUMMARY | {"invented": "later"}))
    with client(server) as atoll:
        assert atoll.submit({}).name == "first"


def test_backoff_keeps_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("atoll.transport.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(
        "atoll.transport.time.sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds)
    )
    backoff = Backoff(10.0)
    while backoff.wait():
        pass
    assert 5.0 < clock[0] <= 10.0
    assert not backoff.wait()
    backoff.reset()
    assert backoff.wait()


PAIRS = {
    "JobSummary": "JobSummary",
    "Cordon": "CordonView",
    "JobPage": "JobPage",
    "JobDetail": "JobDetail",
    "Rank": "RankView",
    "Axis": "AxisView",
    "Placement": "PlacementView",
    "Attempt": "AttemptView",
    "Evaluation": "Evaluation",
    "Checkpoint": "CheckpointView",
    "CheckpointList": "CheckpointList",
    "Event": "EventView",
    "EventPage": "EventPage",
    "StepCost": "StepCost",
    "Metric": "MetricView",
    "MetricPage": "MetricPage",
    "TimelineSummary": "TimelineSummary",
    "TimelineList": "TimelineList",
    "Ledger": "LedgerView",
    "Repair": "RepairView",
    "Goodput": "GoodputView",
    "Finding": "FindingView",
    "Health": "HealthView",
    "HeatMapBlock": "HeatMapBlockView",
    "HeatMap": "HeatMapView",
    "NodeBlame": "NodeBlame",
    "Blame": "BlameView",
    "ProjectGoodput": "ProjectGoodput",
    "ClusterGoodput": "ClusterGoodput",
    "TimelineTotals": "Totals",
    "TimelineRank": "RankTimeline",
    "Timeline": "TimelineView",
    "Log": "LogView",
    "LogPiece": "LogPiece",
    "AxisCost": "AxisCost",
    "IntervalAdvice": "IntervalAdvice",
    "Estimate": "EstimateView",
    "PlanSearch": "SearchView",
    "PlacedAxisCost": "PlacedAxisCost",
    "PlanAnswer": "PlanAnswer",
    "SlotView": "SlotView",
    "NodeView": "NodeView",
    "LinkView": "LinkView",
    "Cluster": "ClusterView",
}


@pytest.mark.parametrize(("mine", "theirs"), PAIRS.items())
def test_the_clients_types_are_those_of_the_server(mine: str, theirs: str) -> None:
    """Same fields, and null allowed wherever the server may say null."""
    from api.schemas import cluster, estimates, goodput, health, jobs, plan, timelines
    from orchestrator.lifecycle import timeline

    homes = (jobs, plan, estimates, goodput, health, cluster, timelines, timeline)
    served = next(getattr(home, theirs) for home in homes if hasattr(home, theirs)).model_fields
    known = getattr(answers, mine).model_fields
    assert set(known) == set(served)
    for name, theirs_field in served.items():
        served_null = type(None) in getattr(theirs_field.annotation, "__args__", ())
        known_null = type(None) in getattr(known[name].annotation, "__args__", ())
        assert known_null == served_null, name


def test_every_answer_type_is_compared() -> None:
    made = {kind.__name__ for kind in answers.Answer.__subclasses__()}
    derived = {"JobDetail", "Timeline", "Goodput", "ProjectGoodput", "ClusterGoodput"}
    assert made | derived == set(PAIRS)
