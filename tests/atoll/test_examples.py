"""Every example is a job that would be taken, the quickstart's too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atoll.cli.job_file import read_job
from tests.atoll.conftest import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_valid_job(path: Path) -> None:
    assert read_job(str(path))["name"] == path.stem


def test_the_quickstart_shows_the_example(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(.*?)```", (REPOSITORY / "docs" / "quickstart.md").read_text(), re.DOTALL)
    assert shown is not None
    path = tmp_path / "shown.yaml"
    path.write_text(shown[1])
    assert read_job(str(path)) == read_job(str(REPOSITORY / "examples" / "first.yaml"))


def test_the_demo_finds_its_job() -> None:
    from atoll.demo import job_path

    assert job_path() == REPOSITORY / "examples" / "demo.yaml"
