"""Everything a client can get wrong, each with the answer it must get: a problem, never a 5xx, nothing left behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from orchestrator.settings import Settings
from orchestrator.store.migrations import upgrade
from tests.api.conftest import job_file
from tests.conftest import DATABASES

NO_JOB = "01890000-0000-7000-8000-000000000000"
JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


@dataclass(frozen=True)
class Wrong:
    method: str
    path: str
    status: int
    code: str
    """Last part of the problem's type."""
    fields: tuple[str, ...] = ()
    """Fields of its violations, each of which must be there."""
    body: bytes | str | None = None
    headers: dict[str, str] = field(default_factory=dict)


def _post(status: int, code: str, body: Any, *fields: str, headers: dict[str, str] | None = None) -> Wrong:
    content = body if isinstance(body, bytes | str) else json.dumps(body)
    return Wrong("POST", "/api/v1/jobs", status, code, fields, content, JSON if headers is None else headers)


def _get(status: int, code: str, path: str, *fields: str, headers: dict[str, str] | None = None) -> Wrong:
    return Wrong("GET", path, status, code, fields, headers=headers or {})


CASES: dict[str, Wrong] = {
    # the body as bytes
    "no body": _post(400, "not-json", ""),
    "no JSON": _post(400, "not-json", "{name: demo"),
    "cut JSON": _post(400, "not-json", '{"name": "demo", "training": {"st'),
    "no UTF-8": _post(400, "not-utf8", b'{"name": "\xff\xfe"}'),
    "UTF-16": _post(400, "not-utf8", json.dumps(job_file()).encode("utf-16")),
    "NaN": _post(400, "not-json", '{"name": "demo", "training": {"steps": NaN}}'),
    "infinity": _post(400, "not-json", '{"name": "demo", "training": {"steps": -Infinity}}'),
    "a key twice": _post(400, "not-json", '{"name": "a", "name": "b", "training": {"steps": 1}}'),
    "5,000 digits": _post(400, "not-json", '{"name": "demo", "training": {"steps": 1%s}}' % ("0" * 5000)),
    "nested 100,000 deep": _post(400, "not-json", "[" * 100_000),
    "YAML syntax": _post(422, "invalid-job", "name: [demo", headers=YAML),
    "YAML tag that makes objects": _post(
        422, "invalid-job", "name: !!python/object/apply:os.system ['true']", headers=YAML
    ),
    "no type": _post(415, "unsupported-media-type", "{}", headers={}),
    "a form": _post(
        415, "unsupported-media-type", "a=b", headers={"Content-Type": "application/x-www-form-urlencoded"}
    ),
    "XML": _post(415, "unsupported-media-type", "<job/>", headers={"Content-Type": "application/xml"}),
    "another charset": _post(
        415, "unsupported-media-type", "{}", headers={"Content-Type": "application/json; charset=latin-1"}
    ),
    "gzip": _post(
        415,
        "unsupported-content-coding",
        gzip.compress(json.dumps(job_file()).encode()),
        headers={**JSON, "Content-Encoding": "gzip"},
    ),
    "announced as gzip": _post(
        415, "unsupported-content-coding", job_file(), headers={**JSON, "Content-Encoding": "gzip"}
    ),
    "too large": _post(413, "body-too-large", " " * ((1 << 20) + 1)),
    # the job file
    "a list": _post(422, "invalid-job", []),
    "a string": _post(422, "invalid-job", '"demo"'),
    "null": _post(422, "invalid-job", "null"),
    "a number": _post(422, "invalid-job", "7"),
    "empty": _post(422, "invalid-job", {}, "name", "training"),
    "three things at once": _post(
        422,
        "invalid-job",
        {"name": "Demo!", "training": {"steps": 0}, "modell": {}},
        "name",
        "training.steps",
        "modell",
    ),
    "unknown key inside": _post(422, "invalid-job", job_file(parallelism={"tpp": 2}), "parallelism.tpp"),
    "name too long": _post(422, "invalid-job", job_file(name="a" * 64), "name"),
    "name with a newline": _post(422, "invalid-job", job_file(name="demo\n"), "name"),
    "name with NUL": _post(422, "invalid-job", job_file(name="de\x00mo"), "name"),
    "name a lone surrogate": _post(
        422, "invalid-job", '{"name": "\\ud800", "training": {"steps": 1}}', "name"
    ),
    "key a lone surrogate": _post(
        422, "invalid-job", '{"name": "a", "training": {"steps": 1}, "\\udfff": 1}'
    ),
    "source with NUL": _post(422, "invalid-job", job_file(data={"source": "/a\x00b"}), "data.source"),
    "source a lone surrogate": _post(
        422,
        "invalid-job",
        '{"name": "a", "training": {"steps": 1}, "data": {"source": "/\\ud800"}}',
        "data.source",
    ),
    "NUL through YAML": _post(
        422,
        "invalid-job",
        'name: a\ntraining: {steps: 1}\ndata: {source: "/a\\0b"}',
        "data.source",
        headers=YAML,
    ),
    "steps a string": _post(422, "invalid-job", job_file(training={"steps": "many"}), "training.steps"),
    "steps a fraction": _post(422, "invalid-job", job_file(training={"steps": 1.5}), "training.steps"),
    "steps 4,000 digits": _post(
        422, "invalid-job", '{"name": "a", "training": {"steps": 1%s}}' % ("0" * 4000), "training.steps"
    ),
    "seed beyond 63 bits": _post(
        422, "invalid-job", job_file(training={"steps": 1, "seed": 2**63}), "training.seed"
    ),
    "a number beyond doubles": _post(
        422,
        "invalid-job",
        '{"name": "a", "training": {"steps": 1}, "model": {"rope_theta": 1e999}}',
        "model.rope_theta",
    ),
    "negative degree": _post(422, "invalid-job", job_file(parallelism={"tp": -2}), "parallelism.tp"),
    "unknown tier": _post(
        422, "invalid-job", job_file(placement={"tp": {"tier": "rack"}}), "placement.tp.tier"
    ),
    "key with a space": _post(
        422,
        "invalid-request",
        job_file(),
        "header.idempotency-key",
        headers={**JSON, "Idempotency-Key": "a b"},
    ),
    "empty key": _post(
        422, "invalid-request", job_file(), "header.idempotency-key", headers={**JSON, "Idempotency-Key": ""}
    ),
    "key too long": _post(
        422,
        "invalid-request",
        job_file(),
        "header.idempotency-key",
        headers={**JSON, "Idempotency-Key": "k" * 256},
    ),
    "a plan of nothing": Wrong("POST", "/api/v1/plan", 422, "invalid-job", ("name", "training"), "{}", JSON),
    # ids and routes
    "unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}"),
    "id that is none": _get(404, "no-such-job", "/api/v1/jobs/demo"),
    "id with NUL": _get(404, "no-such-job", "/api/v1/jobs/%00"),
    "id no UTF-8": _get(404, "no-such-job", "/api/v1/jobs/%ff"),
    "id in capitals": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB.upper()}"),
    "id of 5,000 characters": _get(404, "no-such-job", "/api/v1/jobs/" + "a" * 5000),
    "cancel an unknown job": Wrong("POST", f"/api/v1/jobs/{NO_JOB}/cancel", 404, "no-such-job"),
    "events of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/events"),
    "event stream of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/events/stream"),
    "metrics of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/metrics"),
    "metric stream of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/metrics/stream"),
    "checkpoints of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/checkpoints"),
    "log of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/logs"),
    "log stream of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/logs/stream"),
    "download of an unknown job": _get(404, "no-such-job", f"/api/v1/jobs/{NO_JOB}/logs/download"),
    "unknown route": _get(404, "not-found", "/api/v1/nothing"),
    "unknown version": _get(404, "not-found", "/api/v9/jobs"),
    "slash at the end": _get(404, "not-found", "/api/v1/jobs/"),
    "wrong method": Wrong("DELETE", "/api/v1/jobs", 405, "method-not-allowed"),
    "wrong method on a job": Wrong("PATCH", f"/api/v1/jobs/{NO_JOB}", 405, "method-not-allowed"),
    "writing to the pages": Wrong("POST", "/jobs", 405, "method-not-allowed"),
    # queries
    "limit 0": _get(422, "invalid-request", "/api/v1/jobs?limit=0", "query.limit"),
    "limit 201": _get(422, "invalid-request", "/api/v1/jobs?limit=201", "query.limit"),
    "limit no number": _get(422, "invalid-request", "/api/v1/jobs?limit=ten", "query.limit"),
    "limit of 5,000 digits": _get(422, "invalid-request", "/api/v1/jobs?limit=" + "9" * 5000, "query.limit"),
    "unknown state": _get(422, "invalid-request", "/api/v1/jobs?state=done", "query.state.0"),
    "name with a wildcard": _get(422, "invalid-request", "/api/v1/jobs?name=a%25", "query.name"),
    "name with NUL in the filter": _get(422, "invalid-request", "/api/v1/jobs?name=%00", "query.name"),
    "cursor of nobody": _get(422, "invalid-request", "/api/v1/jobs?cursor=abc", "query.cursor"),
    "cursor no ASCII": _get(422, "invalid-request", "/api/v1/jobs?cursor=%C3%A9%00", "query.cursor"),
    "two at once": _get(
        422, "invalid-request", "/api/v1/jobs?limit=0&state=x", "query.limit", "query.state.0"
    ),
    "after below 0": _get(422, "invalid-request", f"/api/v1/jobs/{NO_JOB}/events?after=-1", "query.after"),
    "after beyond 31 bits": _get(
        422, "invalid-request", f"/api/v1/jobs/{NO_JOB}/events?after=2147483648", "query.after"
    ),
    "points 1": _get(422, "invalid-request", f"/api/v1/jobs/{NO_JOB}/metrics?points=1", "query.points"),
    "log limit above 1 MiB": _get(
        422, "invalid-request", f"/api/v1/jobs/{NO_JOB}/logs?limit=1048577", "query.limit"
    ),
    "negative rank": _get(422, "invalid-request", f"/api/v1/jobs/{NO_JOB}/logs?rank=-1", "query.rank"),
    "attempt 0": _get(422, "invalid-request", f"/api/v1/jobs/{NO_JOB}/logs?attempt=0", "query.attempt"),
    "Last-Event-ID no number": _get(
        422,
        "invalid-request",
        f"/api/v1/jobs/{NO_JOB}/events/stream",
        "header.last-event-id",
        headers={"Last-Event-ID": "seven"},
    ),
    "Last-Event-ID of 30 digits": _get(
        422,
        "invalid-request",
        f"/api/v1/jobs/{NO_JOB}/metrics/stream",
        "header.last-event-id",
        headers={"Last-Event-ID": "9" * 30},
    ),
    # browsers that were led here
    "foreign Host": _get(421, "foreign-host", "/api/v1/jobs", headers={"Host": "evil.example"}),
    "foreign Host that begins like ours": _get(
        421, "foreign-host", "/api/v1/jobs", headers={"Host": "127.0.0.1.evil.example"}
    ),
    "Host that cannot be read": _get(421, "foreign-host", "/api/v1/jobs", headers={"Host": "[::1"}),
    "foreign Origin": _post(
        403, "foreign-origin", job_file(), headers={**JSON, "Origin": "https://evil.example"}
    ),
    "Origin null": _post(403, "foreign-origin", job_file(), headers={**JSON, "Origin": "null"}),
    "cross-site": _post(403, "foreign-origin", job_file(), headers={**JSON, "Sec-Fetch-Site": "cross-site"}),
}


@pytest.fixture(scope="module", params=DATABASES)
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """One app for the whole table, because none of it may leave anything behind."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('wrong') / 'atoll.db'}"
    else:
        url = request.getfixturevalue("postgresql").create_database("wrong_requests")
    upgrade(url)
    app = create_app(Settings(database_url=url))
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        yield opened


@pytest.mark.parametrize("name", CASES)
def test_wrong_request(client: TestClient, name: str) -> None:
    wrong = CASES[name]
    answer = client.request(wrong.method, wrong.path, content=wrong.body, headers=wrong.headers)
    assert answer.status_code == wrong.status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == f"urn:atoll:problem:{wrong.code}"
    assert problem["status"] == wrong.status
    assert problem["detail"]
    assert {v["field"] for v in problem["violations"]} >= set(wrong.fields)
    assert all(v["message"] for v in problem["violations"])
    assert client.get("/api/v1/jobs").json()["items"] == []


def test_405_names_every_method(client: TestClient) -> None:
    assert client.delete("/api/v1/jobs").headers["allow"] == "GET, POST"


def test_chunked_body_is_bounded_while_it_is_read(client: TestClient) -> None:
    """No Content-Length announces it, and it has no end: only counting can stop it."""
    sent = 0

    def endless() -> Any:
        nonlocal sent
        while sent < 64 << 20:
            sent += 65536
            yield b" " * 65536

    answer = client.post("/api/v1/jobs", content=endless(), headers=JSON)
    assert answer.status_code == 413


def test_yaml_aliases_do_not_grow(client: TestClient) -> None:
    """Ten aliases of ten aliases ... nine levels: a billion strings when it is walked naively."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    answer = client.post("/api/v1/jobs", content="\n".join(lines), headers=YAML)
    assert answer.status_code in (400, 422)
    recursive = client.post("/api/v1/jobs", content="name: &a [*a]\ntraining: *a", headers=YAML)
    assert recursive.status_code in (400, 422)
