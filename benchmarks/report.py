"""What the benchmarks share: the machine's description, the result file, and the verdict on the last line."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("torch", "ray", "fastapi", "sqlalchemy", "atoll")


@dataclass(frozen=True, slots=True)
class Verdict:
    """A measured value against its bar."""

    benchmark: str
    """Name of the benchmark and of its result file."""
    measure: str
    """What the value is: `ratio`, `p95 ms` ..."""
    value: float
    bar: float
    at_least: bool = True
    """True when the value must reach the bar, False when it must not pass it."""

    @property
    def met(self) -> bool:
        """False for NaN too."""
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def line(self) -> str:
        return f"{self.benchmark} {self.measure} {self.value:.4g} (bar {self.bar:g})"


def conclude(verdict: Verdict, *, setting: Mapping[str, Any], samples: Any, directory: Path = RESULTS) -> int:
    """Writes `{benchmark}.json`, prints the verdict as the last line, and returns the exit code.

    `setting` holds what was run (plan, steps, pairs), `samples` every raw measurement with its unit in its name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        "verdict": {**asdict(verdict), "met": verdict.met},
        "setting": dict(setting),
        "samples": samples,
        "machine": machine(),
        "versions": versions(),
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    path = directory / f"{verdict.benchmark}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(verdict.line, flush=True)
    return 0 if verdict.met else 1


def machine() -> dict[str, Any]:
    """Processor, cores, memory and system; nothing that names this machine."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "load_average_1min": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def versions() -> dict[str, str]:
    """Python, the packages that matter, and the commit, with `+changes` when files differ from it."""
    found = {"python": platform.python_version(), "commit": _commit()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=RESULTS.parent, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
