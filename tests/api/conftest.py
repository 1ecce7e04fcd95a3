"""An app on an empty database, its client, and a real server for what streams."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.app import create_app
from orchestrator.settings import Settings

TOKEN = "a-token-of-the-test-0123456789"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the developer's shell sets must not change a test."""
    for name in (
        "ATOLL_TOKEN",
        "ATOLL_TOKEN_FILE",
        "ATOLL_HOST",
        "ATOLL_INTERNAL_TOKEN",
        "ATOLL_MAX_BODY_BYTES",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, internal_token="internal")


@pytest.fixture
def app(settings: Settings) -> Iterator[FastAPI]:
    made = create_app(settings)
    yield made
    made.state.database.close()


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        yield opened


def job_file(**changes: Any) -> dict[str, Any]:
    return {"name": "demo", "training": {"steps": 10}, **changes}


@pytest.fixture
def submit(client: TestClient) -> Callable[..., str]:
    """Submits a job file and gives its id."""

    def post(**changes: Any) -> str:
        answer = client.post("/api/v1/jobs", json=job_file(**changes))
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    return post


@contextlib.contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """A uvicorn server in a thread; gives its address."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen(128)
        server = uvicorn.Server(
            uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=1)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(timeout=60)
            assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def address(app: FastAPI) -> Iterator[str]:
    with serving(app) as found:
        yield found


@pytest.fixture
def http(address: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=address, timeout=60, trust_env=False) as opened:
        yield opened
