"""What runs here."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version


@dataclass(frozen=True, slots=True)
class BuildInformation:
    version: str
    python: str


@cache
def build_information() -> BuildInformation:
    try:
        installed = version("atoll")
    except PackageNotFoundError:
        installed = "0+unknown"  # run from a source tree that is not installed
    return BuildInformation(installed, platform.python_version())
