"""The token: asked for on every route, compared, never told; and a server without one only ever serves this machine."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import structlog
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from api.access_log import configure_logging
from api.app import create_app
from api.auth.token import StartRefusedError, is_loopback, resolve_token
from orchestrator.settings import Settings
from tests.api.conftest import TOKEN, job_file

OPEN = {"/healthz", "/readyz"}
NO_JOB = "01890000-0000-7000-8000-000000000000"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, token=TOKEN, host="0.0.0.0")


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _requests(app: FastAPI) -> list[tuple[str, str]]:
    """(method, path) of every route there is, the OpenAPI document included."""
    found = [
        (method, context.path.replace("{job_id}", NO_JOB))
        for context in iter_route_contexts(app.routes)
        for method in sorted(context.methods or ())
    ]
    assert len(found) > 18, "the iteration does not see the routes"
    return found


def test_every_route_asks_for_the_token(app: FastAPI, client: TestClient) -> None:
    for method, path in _requests(app):
        answer = client.request(method, path)
        if path in OPEN:
            assert answer.status_code == 200, path
            continue
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"].startswith("Bearer")
        if method != "HEAD":
            assert answer.json()["type"] == "urn:atoll:problem:unauthorized"
        assert client.request(method, path, headers=_bearer(TOKEN)).status_code != 401, (method, path)


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/v1/nothing", "/metrics", "/api/v1/jobs/../../metrics"]
)
def test_not_even_unknown_routes_answer_without_it(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (401, 503)  # 503: the pages of the UI, when they are not built
    assert client.delete("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        TOKEN,
        f"Basic {TOKEN}",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN.upper()}",
        f"Bearer {TOKEN}, Bearer {TOKEN}",
        "Bearer \xff\xfe",
    ],
)
def test_wrong_tokens(client: TestClient, header: str) -> None:
    assert client.get("/api/v1/jobs", headers={b"Authorization": header.encode("latin-1")}).status_code == 401


def test_two_authorization_headers_are_none(client: TestClient) -> None:
    twice = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")]
    assert client.get("/api/v1/jobs", headers=twice).status_code == 401


def test_token_in_the_query_counts_for_nothing(client: TestClient) -> None:
    assert client.get(f"/api/v1/jobs?token={TOKEN}&access_token={TOKEN}").status_code == 401


def test_scheme_is_case_insensitive(client: TestClient) -> None:
    assert client.get("/api/v1/jobs", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_with_a_token_any_host_and_origin_may_ask(client: TestClient) -> None:
    """A browser never adds the token by itself, so there is nothing to guard against."""
    headers = {"Host": "atoll.example", "Origin": "https://atoll.example", **_bearer(TOKEN)}
    assert client.post("/api/v1/jobs", json=job_file(), headers=headers).status_code == 201


@pytest.fixture(params=["json"])
def captured_logs(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """Everything the process writes to its log, standard output or standard error."""
    written = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    try:
        with redirect_stderr(written), redirect_stdout(written):
            configure_logging(as_json=request.param == "json")
            root.setLevel(logging.DEBUG)
            yield written
    finally:
        root.handlers, root.level = handlers, level
        structlog.reset_defaults()


def test_token_is_never_logged(captured_logs: io.StringIO, app: FastAPI, client: TestClient) -> None:
    def fail() -> None:
        raise RuntimeError("broken on purpose")

    app.add_api_route("/api/v1/broken", fail)
    client.get("/api/v1/jobs", headers=_bearer(TOKEN))
    client.get(f"/api/v1/jobs?token={TOKEN}", headers=_bearer(TOKEN))
    client.get("/api/v1/jobs", headers=_bearer(TOKEN + "x"))
    broken = client.get("/api/v1/broken", headers=_bearer(TOKEN))
    assert broken.status_code == 500
    log = captured_logs.getvalue()
    assert "broken on purpose" in log
    assert '"route": "/api/v1/jobs"' in log
    assert TOKEN not in log
    assert TOKEN not in repr(app.state.settings) + str(app.state.settings.model_dump())


@pytest.mark.parametrize("captured_logs", ["json", "console"], indirect=True)
def test_forged_log_lines(captured_logs: io.StringIO, client: TestClient) -> None:
    client.get("/api/v1/x%0aforged%1b[31m", headers=_bearer(TOKEN))
    assert "/api/v1/x" in captured_logs.getvalue()
    assert not [line for line in captured_logs.getvalue().splitlines() if line.startswith("forged")]
    assert "\x1b" not in captured_logs.getvalue()


def _settings(**values: object) -> Settings:
    return Settings.model_validate({"database_url": "sqlite:////nowhere/none.db", **values})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "", "atoll.example", "127.0.0.1.example"])
def test_open_address_without_a_token_refuses_to_start(host: str) -> None:
    with pytest.raises(StartRefusedError, match="needs a bearer token"):
        create_app(_settings(host=host))


def test_refusal_is_a_sentence_and_a_code() -> None:
    environment = {**os.environ, "ATOLL_HOST": "0.0.0.0", "DATABASE_URL": "sqlite:////nowhere/none.db"}
    ended = subprocess.run(
        [sys.executable, "-m", "api"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("atoll: listening on 0.0.0.0 needs a bearer token: set ATOLL_TOKEN_FILE")
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_loopback_needs_none(host: str) -> None:
    assert is_loopback(host)
    assert resolve_token(_settings(host=host)) is None


def test_token_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    found = resolve_token(_settings(host="0.0.0.0", token_file=path))
    assert found is not None
    assert found.get_secret_value() == TOKEN


@pytest.mark.parametrize("content", ["", "\n", "two words", "tökèn", "x" * 513])
def test_unusable_token_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(StartRefusedError) as refused:
        resolve_token(_settings(token_file=path))
    assert not content.strip() or content not in str(refused.value)


def test_missing_token_file_and_both(tmp_path: Path) -> None:
    with pytest.raises(StartRefusedError, match="cannot be read"):
        resolve_token(_settings(token_file=tmp_path / "none"))
    with pytest.raises(StartRefusedError, match="both"):
        resolve_token(_settings(token_file=tmp_path / "none", token=TOKEN))


def test_own_hosts_and_pages_may_write(database_url: str) -> None:
    app = create_app(Settings(database_url=database_url), trusted_hosts=["atoll.test"])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for host in ("localhost:8750", "127.0.0.1", "[::1]:8750", "atoll.test"):
            headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
            assert client.post("/api/v1/jobs", json=job_file(), headers=headers).status_code == 201, host
