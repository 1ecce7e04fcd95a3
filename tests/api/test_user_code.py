"""`atoll serve --no-user-code`: jobs that bring a module of their own are refused, with all else that is wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from orchestrator.settings import Settings
from tests.api.conftest import job_file

IMPORTED = {"model": {"import": "small_gpt:build"}}
REFUSAL = (
    "names code of the job's own, and this server runs none (`atoll serve --no-user-code`); "
    "leave it out and describe a decoder, not small_gpt:build"
)


@pytest.fixture
def closed(settings: Settings) -> Iterator[TestClient]:
    app = create_app(settings.model_copy(update={"user_code": False}))
    with TestClient(app, base_url="http://127.0.0.1") as opened:
        yield opened


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/plan"])
def test_a_module_of_the_jobs_own_is_refused_with_one_sentence(closed: TestClient, path: str) -> None:
    answer = closed.post(path, json=job_file(**IMPORTED))
    assert answer.status_code == 422
    assert [(e["field"], e["value"], e["message"]) for e in answer.json()["violations"]] == [
        ("model.import", "small_gpt:build", REFUSAL)
    ]


def test_it_is_told_beside_what_else_is_wrong(closed: TestClient) -> None:
    answer = closed.post("/api/v1/jobs", json=job_file(**IMPORTED, parallelism={"cp": 2}))
    assert [e["field"] for e in answer.json()["violations"]] == ["model.import", "parallelism.cp"]


def test_decoders_are_taken(closed: TestClient) -> None:
    assert closed.post("/api/v1/jobs", json=job_file()).status_code == 201


def test_other_servers_take_modules(client: TestClient) -> None:
    assert client.post("/api/v1/jobs", json=job_file(**IMPORTED)).status_code == 201
