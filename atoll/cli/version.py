"""`atoll version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

from atoll.cli.connection import Json
from atoll.cli.output import print_json, standard_output


def version(as_json: Json = False) -> None:
    """Shows the versions that matter."""
    found = {"atoll": installed("atoll"), "python": platform.python_version()}
    found |= {package: installed(package) for package in ("ray", "torch")}
    if as_json:
        print_json(found)
        return
    standard_output().print("  ".join(f"{name} {number}" for name, number in found.items()))
