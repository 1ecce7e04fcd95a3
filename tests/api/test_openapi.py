"""The description of the API: true, complete, and committed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.openapi import description_text
from orchestrator.spec.schema import json_schema

COMMITTED = Path(__file__).parents[2] / "web" / "openapi.json"


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    return dict(json.loads(description_text()))


def test_committed_description_is_current() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == description_text(), (
        "web/openapi.json is stale: python -m api.openapi > web/openapi.json"
    )


def test_module_prints_it() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "api.openapi"],
        capture_output=True,
        check=True,
        cwd=COMMITTED.parents[1],
        timeout=120,
    )
    assert printed.stdout.decode() == description_text()


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(item) for item in value))
    return set()


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    schemas = {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}
    assert _references(description) <= schemas


def test_every_error_is_a_problem(description: dict[str, Any]) -> None:
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            assert {"401", "403", "421", "500"} <= set(operation["responses"]), (method, path)
            for status, response in operation["responses"].items():
                if int(status) >= 400 and path != "/readyz":
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)


def test_names_of_operations_are_chosen(description: dict[str, Any]) -> None:
    """They become names in the typed clients."""
    names = [o["operationId"] for operations in description["paths"].values() for o in operations.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() and "_" not in name for name in names)


def test_job_file_is_described_once(description: dict[str, Any]) -> None:
    schema = json_schema()
    described = description["components"]["schemas"]["JobSpec"]
    assert described["properties"].keys() == schema["properties"].keys()
    assert described["required"] == schema["required"]
