from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from orchestrator.spec.schema import json_schema, schema_text

ROOT = Path(__file__).resolve().parents[3]


def test_the_published_schema_is_current() -> None:
    """`python -m orchestrator.spec.schema > docs/job-spec.schema.json` after every change of a section."""
    assert (ROOT / "docs" / "job-spec.schema.json").read_text() == schema_text()


def test_the_command_prints_the_schema_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator.spec.schema"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=dict(os.environ),
    )
    assert done.stdout == schema_text()
    assert done.stderr == ""


def test_the_schema_is_a_schema_and_tells_right_from_wrong() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    jsonschema.Draft202012Validator.check_schema(json_schema())
    validator.validate({"name": "a", "training": {"steps": 1}, "parallelism": {"tp": 2, "schedule": "gpipe"}})
    for wrong in (
        {},
        {"name": "a", "training": {"steps": 0}},
        {"name": "a", "training": {"steps": 1}, "x": 1},
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)
