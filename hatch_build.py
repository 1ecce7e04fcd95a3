"""Build hook: the web UI becomes `api/static`, the demo's job file `atoll/demo.yaml` of the wheel.

An editable install serves `web/dist` of the checkout, so nothing is built for it. Where `web/dist` is there already it
is taken as it is; otherwise npm builds it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WebUiHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before it collects files; `version` is `editable` for `pip install -e`."""
        if version == "editable" or self.target_name != "wheel":
            return
        web = Path(self.root) / "web"
        bundle = web / "dist"
        if not (bundle / "index.html").is_file():
            build(web)
        build_data["force_include"][str(bundle)] = "api/static"
        build_data["force_include"][str(Path(self.root) / "examples" / "demo.yaml")] = "atoll/demo.yaml"


def build(web: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError(
            "the web UI is not built and npm is not installed: install Node 20.19 or newer, or put a built UI into "
            f"{web / 'dist'}"
        )
    subprocess.run([npm, "ci", "--no-fund", "--no-audit"], cwd=web, check=True)
    subprocess.run([npm, "run", "build"], cwd=web, check=True)
