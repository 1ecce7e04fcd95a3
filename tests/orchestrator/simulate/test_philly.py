"""The Philly trace: production's queue and placement beside first-come-first-served without topology.

`benchmarks/simulation.py` has the whole comparison; here is a part of the trace, and in a slow test all of it.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from orchestrator.simulate.discipline import FIFO_WITHOUT_TOPOLOGY, PRODUCTION
from orchestrator.simulate.report import Report
from orchestrator.simulate.scenario import Scenario, run


def fabric_file(folder: Path, leaves: int, nodes: int) -> Path:
    """Nodes of eight, an island each."""
    lines = [
        f'  - {{name: "l{leaf}n[0-{nodes - 1}]", accelerators: 8, island: "{{name}}", leaf: l{leaf}}}'
        for leaf in range(leaves)
    ]
    path = folder / "fabric.yaml"
    path.write_text("nodes:\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def trace(shared_data: Path) -> Path:
    return shared_data / "traces" / "philly" / "philly_jobs_82k.csv"


def part(trace: Path, folder: Path, first: int, count: int) -> Path:
    """Some of the trace's jobs."""
    lines = trace.read_text().splitlines()
    path = folder / "part.csv"
    path.write_text("\n".join([lines[0], *lines[1 + first : 1 + first + count]]) + "\n")
    return path


def test_a_part_of_it_is_deterministic_by_seed(trace: Path, shared_data: Path, tmp_path: Path) -> None:
    """Time limits and the nodes that fail are drawn by the seed."""
    some, fabric = part(trace, tmp_path, 20_000, 400), fabric_file(tmp_path, 2, 4)
    faults = shared_data / "traces" / "infinitehbd" / "fault_trace.json"

    def report(seed: int) -> Report:
        return run(Scenario(some, fabric, faults, seed=seed, limit_factor=3.0))

    first = report(1)
    assert report(1).as_json() == first.as_json()
    assert report(2).wait_s != first.wait_s


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_of_it_on_2560_accelerators_within_three_minutes(trace: Path, tmp_path: Path) -> None:
    began_s = time.process_time()
    report = run(Scenario(trace, fabric_file(tmp_path, 20, 16)))
    assert time.process_time() - began_s < 180.0
    assert (report.jobs, report.states) == (82_247, {"succeeded": 82_247})
    assert report.tally["cross_leaf"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_shorter_waits_and_no_pipeline_across_leaves(trace: Path, tmp_path: Path) -> None:
    fabric = fabric_file(tmp_path, 6, 16)
    ours, base = (run(Scenario(trace, fabric, policy=name)) for name in (PRODUCTION, FIFO_WITHOUT_TOPOLOGY))
    assert ours.wait_s["p95"] < base.wait_s["p95"]
    assert ours.utilisation >= base.utilisation
    assert ours.tally["cross_leaf"] == 0 < base.tally["cross_leaf"]
