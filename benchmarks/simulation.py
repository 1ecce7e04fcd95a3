"""The Philly trace in the simulator: production's queue and placement over first-come-first-served without topology.

The ratio is that of the 95th percentiles of waits; the bar is 1. It is infinite, so not met, when production's
utilisation is lower, when one of its pipelines lies under two leaves, when all jobs on 2,504 accelerators take more
than three minutes of one core (at the trace's own load, or at that of the contended cluster), or when a second run
differs.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Verdict, conclude

from orchestrator.simulate.discipline import FIFO, FIFO_WITHOUT_TOPOLOGY, PRODUCTION
from orchestrator.simulate.report import Report
from orchestrator.simulate.scenario import Scenario, run

NODE = 8
NODES_A_LEAF = 16
LEAVES_A_SPINE = 4
CONTENDED = 768
"""Accelerators at which the trace's jobs have to wait: it keeps 374 busy on average, 1,243 at its peak."""
LARGE = 2_504
BAR_S = 180.0


def fabric_text(accelerators: int) -> str:
    """A fabric file: nodes of eight, an island each; sixteen under a leaf, four leaves under a spine."""
    lines = ["nodes:"]
    for node in range(accelerators // NODE):
        leaf = node // NODES_A_LEAF
        lines.append(
            f'  - {{name: n{node}, accelerators: {NODE}, island: "{{name}}", leaf: l{leaf}, '
            f"spine: s{leaf // LEAVES_A_SPINE}, accelerator: gpu}}"
        )
    return "\n".join(lines) + "\n"


def simulated(directory: Path, trace: Path, accelerators: int, policy: str, **options: Any) -> dict[str, Any]:
    """The report of one simulation, and the processor time it took."""
    fabric = directory / f"fabric-{accelerators}.yaml"
    fabric.write_text(fabric_text(accelerators))
    began_s = time.process_time()
    report: Report = run(Scenario(trace=trace, fabric=fabric, policy=policy, **options))
    cpu_s = time.process_time() - began_s
    found = {
        **report.as_json(),
        "cpu_s": round(cpu_s, 1),
        "options": {k: getattr(v, "name", v) for k, v in options.items()},
    }
    print(
        f"{accelerators} accelerators, {policy}{options or ''}: wait p95 {report.wait_s['p95']:.0f} s, "
        f"mean {report.wait_s['mean']:.0f} s, utilisation {report.utilisation:.4f}, "
        f"cross-leaf pipelines {report.tally['cross_leaf']:.0f} of {report.tally['pipelines']:.0f}, "
        f"goodput {report.goodput:.4f}, {cpu_s:.0f} s",
        flush=True,
    )
    return found


def ratio(samples: dict[str, dict[str, Any]]) -> float:
    """p95 wait over the baseline's; infinite when another bar is missed."""
    ours, base = samples[PRODUCTION], samples[FIFO_WITHOUT_TOPOLOGY]
    missed = (
        ours["tally"]["cross_leaf"] > 0
        or ours["utilisation"] < base["utilisation"]
        or max(samples[name]["cpu_s"] for name in ("large", "large_loaded")) > BAR_S
        or without_time(samples["large"]) != without_time(samples["large_again"])
    )
    return math.inf if missed else float(ours["wait_s"]["p95"] / base["wait_s"]["p95"])


def without_time(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sample.items() if name != "cpu_s"}


def main() -> int:
    shared = Path(os.environ.get("ATOLL_SHARED_DATA", "../shared/data")) / "traces"
    parser = argparse.ArgumentParser(description="Philly: production's queue over FIFO without topology")
    parser.add_argument("--trace", type=Path, default=shared / "philly" / "philly_jobs_82k.csv")
    parser.add_argument("--faults", type=Path, default=shared / "infinitehbd" / "fault_trace.json")
    parser.add_argument("--accelerators", type=int, default=CONTENDED)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for path in (options.trace, options.faults):
        if not path.is_file():
            parser.error(f"{path} is not there: ATOLL_SHARED_DATA names the folder of the public data")
    with tempfile.TemporaryDirectory(prefix="atoll-simulation-") as name:
        directory, trace, size = Path(name), options.trace, options.accelerators
        seed, faults = options.seed, options.faults

        def of(accelerators: int, policy: str = PRODUCTION, **more: Any) -> dict[str, Any]:
            return simulated(directory, trace, accelerators, policy, seed=seed, **more)

        samples = {policy: of(size, policy) for policy in (FIFO_WITHOUT_TOPOLOGY, FIFO, PRODUCTION)}
        samples["limits"] = of(size, limit_factor=3.0)
        samples["faults"] = of(size, faults=faults)
        samples["large"] = of(LARGE)
        samples["large_again"] = of(LARGE)
        samples["large_loaded"] = of(LARGE, faster=LARGE / size)
    return conclude(
        Verdict("simulation", "ratio", ratio(samples), 1.0, at_least=False),
        setting={
            "accelerators": options.accelerators,
            "large": LARGE,
            "seed": options.seed,
            "trace": options.trace.name,
            "faults": options.faults.name,
        },
        samples=samples,
    )


if __name__ == "__main__":
    sys.exit(main())
