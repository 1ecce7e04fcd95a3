"""Schemathesis over the whole API: no 5xx, no status, type or body that the description does not have."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.app import create_app
from api.openapi import description_text
from orchestrator.lifecycle.reports import LogTail
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.settings import Settings
from orchestrator.spec.parse import parse_spec
from orchestrator.store import jobs, logs
from orchestrator.store.engine import Database
from orchestrator.store.migrations import upgrade
from tests.api.conftest import job_file

EXAMPLES = 20
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def _finished_job(database: Database) -> str:
    """A job that is over, so that its streams end."""
    now = datetime.now(UTC)
    with database.write() as session:
        job = jobs.insert(session, parse_spec(job_file()), now=now).job
        logs.keep(session, job.id, [LogTail(1, 0, "step 1\nstep 2 é\n", 16)])
        jobs.set_state(session, job.id, JobState.SUCCEEDED, Reason.COMPLETED, "", now=now)
    return job.id


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def schema(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('fuzz') / 'atoll.db'}"
    else:
        url = request.getfixturevalue("postgresql").create_database("fuzz")
    upgrade(url)
    app = create_app(Settings(database_url=url), trusted_hosts=["testserver"])
    job = _finished_job(app.state.database)
    loaded = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
    chance = random.Random(7)

    @loaded.hook
    def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
        """Invented ids never hit a job; most requests are about one that exists."""
        if path_parameters and "job_id" in path_parameters and chance.random() < 0.8:
            return {**path_parameters, "job_id": job}
        return path_parameters

    return loaded


VALID, INVALID = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
REQUESTS = [
    pytest.param(method.upper(), path, mode, id=f"{mode.value} {method.upper()} {path}")
    for path, operations in json.loads(description_text())["paths"].items()
    for method, operation in operations.items()
    for mode in (VALID, INVALID)
    if mode is VALID or "security" in operation  # a probe has nothing that could be broken
]


@pytest.mark.parametrize(("method", "path", "mode"), REQUESTS)
def test_no_surprise(schema: Any, method: str, path: str, mode: GenerationMode) -> None:
    """Requests as described, and requests that break the description on purpose."""

    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    check()
