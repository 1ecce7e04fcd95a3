"""The wheel holds the web UI and the demo's job file; the Dockerfile and the ignore file fit the tree."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

from tests.atoll.conftest import REPOSITORY

PACKAGES = ("orchestrator", "actors", "api", "atoll")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names in a wheel built from a copy of the sources with a web UI of one page."""
    source = tmp_path_factory.mktemp("source")
    for folder in (*PACKAGES, "examples"):
        shutil.copytree(
            REPOSITORY / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__", "static")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(REPOSITORY / name, source / name)
    bundle = source / "web" / "dist"
    (bundle / "assets").mkdir(parents=True)
    (bundle / "index.html").write_text("<!doctype html>")
    (bundle / "assets" / "index.js").write_text("")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(source / "out")],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (built,) = (source / "out").glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return archive.namelist()


def test_the_wheel_is_whole(wheel: list[str]) -> None:
    for name in (
        "api/static/index.html",
        "api/static/assets/index.js",
        "atoll/demo.yaml",
        "orchestrator/estimate/hardware.yaml",
        "atoll/cli/submit.py",
        "orchestrator/store/migrations/versions/0001_first_tables.py",
    ):
        assert name in wheel


def test_the_wheel_holds_nothing_else(wheel: list[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def instructions() -> list[tuple[str, str]]:
    """(instruction, rest) of the Dockerfile, continued lines joined, comments left out."""
    lines = [
        line for line in (REPOSITORY / "Dockerfile").read_text().splitlines() if not line.startswith("#")
    ]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def test_the_dockerfile_copies_what_is_there_and_not_ignored() -> None:
    kept = {
        line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    for kind, rest in instructions():
        if kind != "COPY" or rest.startswith("--from"):
            continue
        for source in shlex.split(rest)[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert source.strip("/").split("/")[0] in kept, source


def test_the_image_runs_as_nobody_and_in_exec_form() -> None:
    found = instructions()
    stages = [number for number, (kind, _) in enumerate(found) if kind == "FROM"]
    assert len(stages) == 3
    last = found[stages[-1] :]
    assert ("USER", "10001:10001") in last
    assert json.loads(dict(last)["CMD"]) == ["python", "-m", "api"]
    health = dict(last)["HEALTHCHECK"]
    program = json.loads(health.partition("CMD ")[2])[-1]
    compile(program, "HEALTHCHECK", "exec")
    assert "/healthz" in program


def test_the_image_installs_the_pinned_dependencies() -> None:
    """Python and Node of the image are those the packages ask for; torch comes by the constraint."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    images = [rest for kind, rest in instructions() if kind == "FROM"]
    assert any(image.startswith("python:3.11-") for image in images)
    assert project["requires-python"].startswith(">=3.11")
    assert re.search(r"^torch==2\.13\.0$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=]", requirement)[0].lower().replace("_", "-") for requirement in wanted}
    assert names <= pinned


def test_the_constraints_name_no_place() -> None:
    text = (REPOSITORY / "constraints.txt").read_text()
    assert "://" not in text
    assert " @ " not in text
    assert not re.search(r"==\S*\+", text)
