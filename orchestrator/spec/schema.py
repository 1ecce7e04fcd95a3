"""JSON Schema of a job file: `python -m orchestrator.spec.schema > docs/job-spec.schema.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from orchestrator.spec.job import JobSpec


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a job file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JobSpec.model_json_schema(mode="validation"),
    }


def schema_text() -> str:
    """The schema as it is published: two spaces, one newline at the end."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
