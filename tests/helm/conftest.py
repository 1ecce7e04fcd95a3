"""Renders the chart with Helm 4 and Helm 3."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "atoll"
VALUES = sorted((Path(__file__).parent / "values").glob("*.yaml"))
HELMS = ("helm", "helm3")

Objects = list[dict[str, Any]]


@cache
def binary(name: str) -> str | None:
    return shutil.which(name, path=f"{REPOSITORY / '.tools' / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a Helm with folders of its own; the test is skipped where that Helm is not installed."""
    home = tmp_path_factory.mktemp("helm")
    folders = {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        path = binary(name)
        if path is None:
            pytest.skip(f"{name} is not installed: `make tools` fetches it")
        return subprocess.run(
            [path, *arguments], env={**os.environ, **folders}, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture(scope="session")
def render(helm: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Objects]:
    """Objects of the chart for a file of values and `--set` settings."""
    known: dict[tuple[str, ...], Objects] = {}

    def objects(
        values: Path | None = None, *settings: str, name: str = "helm", release: str = "test"
    ) -> Objects:
        key = (str(values), *settings, name, release)
        if key not in known:
            flags = ["-f", str(values)] if values else []
            flags += [part for setting in settings for part in ("--set", setting)]
            ran = helm(name, "template", release, str(CHART), "--namespace", "training", *flags)
            assert ran.returncode == 0, ran.stderr
            known[key] = [found for found in yaml.safe_load_all(ran.stdout) if found]
        return known[key]

    return objects
