"""The server itself: probes, numbers, headers, the last resort for errors, and a database that goes away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from api import web
from api.app import create_app
from orchestrator.settings import Settings
from orchestrator.store.errors import is_full
from tests.api.conftest import job_file


def test_probes(client: TestClient) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "problems": []}
    assert client.get("/readyz").json() == {"status": "ready", "problems": []}


def test_not_ready_without_tables(empty_database_url: str) -> None:
    with TestClient(
        create_app(Settings(database_url=empty_database_url)), base_url="http://127.0.0.1"
    ) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (503, "not-ready")
        assert "migrations" in answer.json()["problems"][0]
        assert client.get("/healthz").status_code == 200


@pytest.fixture
def without_database() -> TestClient:
    url = "postgresql://nobody@127.0.0.1:1/none?connect_timeout=2"
    return TestClient(create_app(Settings(database_url=url)), base_url="http://127.0.0.1")


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/cluster", "/api/v1/jobs/x/events/stream"])
def test_database_down(without_database: TestClient, path: str) -> None:
    job = "01890000-0000-7000-8000-000000000000"
    answer = without_database.get(path.replace("/x/", f"/{job}/"))
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:atoll:problem:database-unavailable"
    assert answer.headers["retry-after"]
    assert "nobody" not in answer.text


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_database_without_room_says_so_and_can_be_read(client: TestClient, app: FastAPI) -> None:
    @event.listens_for(app.state.database.engine, "connect")
    def no_larger(connection: Any, _record: object) -> None:
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes its present size for the least

    app.state.database.engine.dispose()
    answers = [client.post("/api/v1/jobs", json=job_file()) for _ in range(50)]
    full = next(answer for answer in answers if answer.status_code != 201)
    assert full.status_code == 503
    assert full.json()["detail"].startswith("The database has no room left on its disk")
    assert client.get("/api/v1/jobs").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_postgresqls_code_for_a_full_disk_is_known() -> None:
    assert is_full(DBAPIError("INSERT", {}, psycopg.errors.DiskFull("could not extend file")))
    assert not is_full(DBAPIError("INSERT", {}, psycopg.errors.AdminShutdown("terminating connection")))


def test_probes_and_numbers_with_the_database_down(without_database: TestClient) -> None:
    assert without_database.get("/healthz").status_code == 200
    assert without_database.get("/readyz").status_code == 503
    scraped = without_database.get("/metrics")
    assert scraped.status_code == 200
    assert "atoll_database_up 0.0" in scraped.text


def test_numbers(client: TestClient) -> None:
    job = client.post("/api/v1/jobs", json=job_file()).json()["id"]
    client.get(f"/api/v1/jobs/{job}")
    client.get("/api/v1/jobs/none")
    client.request("BREW", "/api/v1/jobs")
    scraped = client.get("/metrics")
    assert scraped.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        "atoll_database_up 1.0",
        'atoll_jobs{state="queued"} 1.0',
        'atoll_jobs{state="running"} 0.0',
        'atoll_http_requests_total{method="GET",route="/api/v1/jobs/{job_id}",status="200"} 1.0',
        'atoll_http_requests_total{method="GET",route="/api/v1/jobs/{job_id}",status="404"} 1.0',
        'atoll_http_requests_total{method="other",route="/api/v1/jobs",status="405"} 1.0',
        'atoll_http_request_seconds_count{method="POST",route="/api/v1/jobs"} 1.0',
        "atoll_http_streams_open 0.0",
    ):
        assert line in scraped.text.splitlines()
    assert "atoll_build_info{" in scraped.text
    assert job not in scraped.text


def test_schema_accepts_what_the_server_accepts(client: TestClient) -> None:
    schema = client.get("/api/v1/schema").json()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(job_file(), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job_file(modell={}), schema)
    assert set(client.get("/api/v1/version").json()) == {"version", "python"}


def test_headers(client: TestClient) -> None:
    for path in ("/api/v1/jobs", "/api/v1/nothing", "/"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe-eval" not in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
    assert client.get("/api/v1/jobs").headers["cache-control"] == "no-store"


def test_request_ids(client: TestClient) -> None:
    first, second = (client.get("/healthz").headers["x-request-id"] for _ in range(2))
    assert first != second
    assert client.get("/healthz", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    for forged in ("a b", "x" * 65, "a\tb", ""):
        assert client.get("/healthz", headers={"X-Request-ID": forged}).headers["x-request-id"] != forged


def test_unexpected_errors_tell_nothing(app: FastAPI, client: TestClient) -> None:
    def fail() -> None:
        raise RuntimeError("the password is swordfish")

    app.add_api_route("/api/v1/broken", fail)
    answer = client.get("/api/v1/broken")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:atoll:problem:internal"
    assert "swordfish" not in answer.text
    assert answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_long_answers_are_compressed(client: TestClient) -> None:
    answer = client.get("/api/v1/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) < len(answer.content) / 4
    plain = client.get("/api/v1/openapi.json", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Atoll</title>")
    (folder / "assets" / "app-1a2b.js").write_text("let x = 1")
    (folder / "favicon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "leak.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setattr(web, "find_bundle", lambda: folder)
    return folder


def test_pages(client: TestClient, bundle: Path) -> None:
    entry = client.get("/")
    assert "<title>Atoll</title>" in entry.text
    assert entry.headers["cache-control"] == "no-cache"
    assert client.get("/jobs/some-id").text == entry.text
    script = client.get("/assets/app-1a2b.js")
    assert "javascript" in script.headers["content-type"]
    assert "immutable" in script.headers["cache-control"]
    assert client.head("/").status_code == 200
    missing = client.get("/assets/old.js")
    assert (missing.status_code, missing.headers["content-type"]) == (404, "application/problem+json")
    assert client.get("/api/nothing").status_code == 404


@pytest.mark.parametrize(
    "path", ["/../secret.txt", "/%2e%2e/secret.txt", "/assets/..%2f..%2fsecret.txt", "/leak.txt", "/%00.txt"]
)
def test_nothing_outside_the_bundle(client: TestClient, bundle: Path, path: str) -> None:
    answer = client.get(path)
    assert "secret" not in answer.text.replace("secret.txt", "")
    assert answer.status_code == 404


def test_pages_load_without_the_token(database_url: str, bundle: Path) -> None:
    app = create_app(Settings(database_url=database_url, token="t"))
    with TestClient(app, base_url="http://atoll.example") as client:
        assert client.get("/").status_code == 200
        assert client.get("/jobs").status_code == 200
        assert client.get("/api/v1/jobs").status_code == 401


def test_pages_that_are_not_built_say_so(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "find_bundle", lambda: None)
    answer = client.get("/")
    assert answer.status_code == 503
    assert "not built" in answer.text
