"""Lines of fields in a job file."""

from __future__ import annotations

import yaml

from atoll.cli.job_file import line_of

TEXT = """\
name: a

training:
  steps: 1
  optimizer:
    betas:
      - 0.9
      - 7
"""
ROOT = yaml.compose(TEXT, Loader=yaml.SafeLoader)


def test_lines_of_fields() -> None:
    expected = {
        "name": 1,
        "training": 3,
        "training.steps": 4,
        "training.optimizer.betas": 6,
        "training.optimizer.betas.1": 8,
        "training.missing": 3,
        "missing": None,
        "": None,
    }
    assert {field: line_of(ROOT, field) for field in expected} == expected


def test_json_has_lines_too() -> None:
    root = yaml.compose('{"name": "a",\n "training": {"steps": 1}}', Loader=yaml.SafeLoader)
    assert line_of(root, "training.steps") == 2
