"""The description of the API: `python -m api.openapi > web/openapi.json`."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.schemas.cluster import Problem
from api.schemas.jobs import EventView, LogPiece, MetricView, StreamEnd, StreamProblem
from orchestrator.spec.job import JobSpec

_REFERENCE = "#/components/schemas/{model}"
_BESIDE_THE_ROUTES: tuple[type[BaseModel], ...] = (
    Problem,
    EventView,
    MetricView,
    LogPiece,
    StreamEnd,
    StreamProblem,
)
"""Bodies that no route names by its return type: problems and the data of streams."""


def describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1 of `app`, made once. Adds what FastAPI cannot see: job files are read by hand."""
    if app.openapi_schema is None:
        description = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        schemas = description.setdefault("components", {}).setdefault("schemas", {})
        _, shown = models_json_schema(
            [(m, "serialization") for m in _BESIDE_THE_ROUTES], ref_template=_REFERENCE
        )
        _, taken = models_json_schema([(JobSpec, "validation")], ref_template=_REFERENCE)
        for found in (shown, taken):
            for name, schema in found["$defs"].items():
                schemas.setdefault(name, schema)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        description["components"]["schemas"] = dict(sorted(schemas.items()))
        app.openapi_schema = description
    return app.openapi_schema


def description_text() -> str:
    """The same text on every machine: no setting and no version of Python is in it."""
    from api.app import create_app
    from orchestrator.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(database_url=f"sqlite:///{folder}/none.db"))
        return json.dumps(app.openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(description_text())
