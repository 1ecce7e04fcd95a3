"""Placements on an emulated network: `python -m benchmarks.fabric`. Needs root; without it, it says so and ends with 0.

Namespaces are nodes, bridges leaf switches and a spine, token buckets their links (`network.py`); a Ray cluster runs on
them, one raylet a namespace, and in it one actor for each of 16 slots. The actors train a small job with the product's
engine and gloo on one placement after the other: Atoll's (the solver, from the declared links), those of Ray's PACK
and SPREAD, random ones, the worst that is found. Placements take turns, so what the machine does besides meets all of
them. For each job the last lines have the worst of: steps on Atoll's placement over the best of Ray's, over 1.03; 1.5
over how much faster they are than the mean of Ray's, where the network matters; 0.8 over Kendall's tau of predicted and
measured order. At most 1.0 passes. Placements of one form (`ranking.form`) are measured as one.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.fabric.cluster import ROOT, Cluster
from benchmarks.fabric.jobs import JOBS, SLOTS, WIRING
from benchmarks.fabric.measure import ANSWER, SAMPLES_OF_RAY, SEEDS, Order
from benchmarks.fabric.network import Network, why_not
from benchmarks.fabric.ranking import Form, form, kendall_tau
from benchmarks.report import Verdict, conclude
from orchestrator.topology.fabric import Slot

SLOWER, FASTER, TAU = 1.03, 1.5, 0.8
LONGEST_S = 3600.0


def figures(placements: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What is judged, of one job. Medians are of a form: the links of all nodes and of all leaves are alike here."""
    leaf_of = {host.name: host.leaf for host in WIRING.hosts()}
    forms = {one["name"]: form([Slot(**slot) for slot in one["slots"]], leaf_of) for one in placements}
    samples: dict[Form, list[float]] = {}
    for one in placements:
        samples.setdefault(forms[one["name"]], []).extend(one["step_s"])
    median = {name: statistics.median(samples[of]) for name, of in forms.items()}
    rays = [value for name, value in median.items() if name.startswith(("pack", "spread"))]
    predicted = [one["predicted_communication_s"] for one in placements]
    return {
        "over_best_of_ray": median["atoll"] / min(rays),
        "mean_of_ray_over_it": statistics.mean(rays) / median["atoll"],
        "tau": kendall_tau(predicted, list(median.values())),
    }


def ratio(found: Mapping[str, float], *, matters: bool) -> float:
    """The worst of the figures, each over its bar; those of a network that hardly matters have no order to predict."""
    ratios = [found["over_best_of_ray"] / SLOWER]
    if matters:
        ratios += [FASTER / found["mean_of_ray_over_it"], TAU / max(found["tau"], 1e-9)]
    return max(ratios)


def measured(jobs: Sequence[str], *, rounds: int, steps: int, uplink_delay_s: float) -> dict[str, Any]:
    wiring = replace(WIRING, uplink_delay_s=uplink_delay_s)
    with Network(wiring) as network, Cluster(network, SLOTS) as cluster:
        order = cluster.directory / "order.json"
        order.write_text(json.dumps(asdict(Order(network.owner, jobs, rounds, steps, uplink_delay_s))))
        command = [sys.executable, "-m", "benchmarks.fabric.measure", cluster.address, str(order)]
        subprocess.run(
            network.inside("head", command), env=cluster.environment, cwd=ROOT, check=True, timeout=LONGEST_S
        )
        return dict(json.loads(Path(order.with_name(ANSWER)).read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.fabric")
    names = [job.name for job in JOBS]
    parser.add_argument("--job", choices=names, action="append", help="one of them; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every placement")
    parser.add_argument("--steps", type=int, default=2, help="of a turn")
    parser.add_argument(
        "--uplink-delay", type=float, default=0.0, help="milliseconds of each uplink, one way"
    )
    options = parser.parse_args()
    if reason := why_not():
        print(f"fabric skipped: {reason}")
        return 0
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(f"{parser.prog} was told to end"))
    chosen = [job for job in JOBS if options.job is None or job.name in options.job]
    delay_s = options.uplink_delay / 1e3
    samples = measured(
        [job.name for job in chosen], rounds=options.rounds, steps=options.steps, uplink_delay_s=delay_s
    )
    codes = []
    for job in chosen:
        found = figures(samples[job.name]["placements"])
        told = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
        print(f"{job.name}: {told}", flush=True)
        setting = {
            "wiring": asdict(replace(WIRING, uplink_delay_s=delay_s)),
            "slots": SLOTS,
            "rounds": options.rounds,
            "steps": options.steps,
            "samples_of_ray": SAMPLES_OF_RAY,
            "seeds": len(SEEDS),
            "bars": {"slower": SLOWER, "faster": FASTER, "tau": TAU},
        }
        name = f"fabric_{job.name}" + ("_delayed" if delay_s else "")
        verdict = Verdict(name, "ratio", ratio(found, matters=job.matters), 1.0, at_least=False)
        codes.append(conclude(verdict, setting=setting, samples=samples[job.name] | {"figures": found}))
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
