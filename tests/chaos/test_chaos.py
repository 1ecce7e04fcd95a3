"""Ten seeds on a real control plane and cluster: every invariant of `invariants.py` holds after each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SEEDS = (2, 4, 6, 13, 20, 21, 23, 29, 44, 59)
"""Ranks, agents, controller, API, control plane, database, disk, links, a shard; in steps and in the start."""
PATIENCE_S = 1200.0
"""On a very busy machine; a quiet one takes a tenth."""
REPOSITORY = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE_S + 60)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """By seed what was logged. A process of its own, which takes a network namespace where it may."""
    log = tmp_path_factory.mktemp("chaos") / "runs.jsonl"
    command = [sys.executable, "-m", "tests.chaos", "--seeds", ",".join(map(str, SEEDS)), "--log", str(log)]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert log.exists(), done.stdout + done.stderr
    return {run["seed"]: run for run in map(json.loads, log.read_text().splitlines())}


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost(runs: dict[int, dict[str, Any]], seed: int) -> None:
    assert seed in runs, f"the runs ended before: {sorted(runs)}"
    run = runs[seed]
    assert run["violations"] == [], run
    assert run["outcome"] == "succeeded"
    assert run["faults"]
