"""How the solver's time and memory grow with the cluster: `python benchmarks/placement_scale.py`.

One job over a whole cluster of 1,024 to 131,072 accelerators, and one over most of a fragmented cluster (a node in
fifty busy in part), on one core, with the cost of its communication. The value is the worst of: seconds at 16,384 over
1 s, seconds at 131,072 over 8 s, growth exponent over 1.2, memory over 1 GB. At most 1.0 passes.
"""

from __future__ import annotations

import argparse
import gc
import math
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from report import Verdict, conclude

from orchestrator.placement.demand import workload_of
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement
from orchestrator.placement.solver import solve
from orchestrator.spec.job import JobSpec
from orchestrator.spec.parse import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.links import Link

SIZES = tuple(1 << power for power in range(10, 18))
BARS_S = {16_384: 1.0, 131_072: 8.0}
BAR_EXPONENT = 1.2
BAR_BYTES = 1e9
WIDTH, NODES_A_LEAF, LEAVES_A_SPINE = 8, 16, 8
TP, PP = 8, 8


def fabric_of(accelerators: int) -> Fabric:
    """Nodes of 8 in one island each, 16 to a leaf, 8 leaves to a spine; two thirds of a leaf's bandwidth go up."""
    nodes = []
    for number in range(accelerators // WIDTH):
        leaf = number // NODES_A_LEAF
        domains = {
            Tier.ISLAND: f"n{number}",
            Tier.LEAF: f"l{leaf}",
            Tier.SPINE: f"s{leaf // LEAVES_A_SPINE}",
            Tier.CORE: "c0",
        }
        nodes.append(Node(f"n{number}", WIDTH, domains, accelerator="H100"))
    per_leaf = WIDTH * NODES_A_LEAF * 50e9
    links = {Tier.LEAF: Link("ib-ndr", 50e9, 5e-6), Tier.SPINE: Link("ib-ndr", 50e9, 7e-6, per_leaf * 2 / 3)}
    return Fabric(tuple(nodes), links)


def job_of(replicas: int) -> JobSpec:
    """A model of 70 billion parameters (Llama 3.1 70B: 80 layers of 8,192, 64 heads, 8 for keys), tp 8 and pp 8."""
    return parse_spec(
        {
            "name": "scale",
            "model": {"layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn_hidden": 28672},
            "parallelism": {"tp": TP, "pp": PP, "dp": replicas, "microbatches": 16, "zero": 1},
            "training": {
                "steps": 1,
                "global_batch": 16 * replicas,
                "sequence_length": 4096,
                "precision": "bf16",
            },
            "data": {"tokenizer": "bpe", "vocab_size": 128_256},
        }
    )


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    fabric: Fabric
    free: frozenset[Slot]
    spec: JobSpec


def cases(accelerators: int, seed: int) -> list[Case]:
    fabric = fabric_of(accelerators)
    whole = fabric.slots()
    random = Random(seed)
    broken = random.sample(fabric.nodes, max(1, len(fabric.nodes) // 50))
    busy = {Slot(node.name, random.randrange(WIDTH)) for node in broken}
    replicas = accelerators // (TP * PP)
    return [
        Case("whole", fabric, whole, job_of(replicas)),
        Case("fragmented", fabric, whole - busy, job_of(max(1, replicas * 3 // 4))),
    ]


def seconds(case: Case) -> float:
    mesh, workload = Mesh.of(case.spec.parallelism), workload_of(case.spec)
    fabric = Fabric(case.fabric.nodes, case.fabric.links)  # nothing remembered from the run before
    gc.collect()
    began = time.perf_counter()
    answer = solve(
        mesh, case.spec.placement, fabric, case.free, resources=case.spec.resources, workload=workload
    )
    taken = time.perf_counter() - began
    if not isinstance(answer, Placement) or len(set(answer.slots)) != mesh.size:
        raise RuntimeError(f"{case.name}: {mesh.size} ranks were not placed: {answer}")
    return taken


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Slope of log time over log size, least squares."""
    slope, _ = statistics.linear_regression([math.log(n) for n in sizes], [math.log(t) for t in times])
    return slope


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    taken: dict[str, dict[int, list[float]]] = {}
    memory: dict[int, int] = {}
    for size in SIZES:
        for case in cases(size, chosen.seed):
            times = [seconds(case) for _ in range(chosen.repeats)]
            taken.setdefault(case.name, {})[size] = times
            print(f"{size:7} accelerators, {case.name:10} {statistics.median(times):8.3f} s", flush=True)
        memory[size] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"{size:7} accelerators, memory {memory[size] / 1e6:6.0f} MB", flush=True)
    ratios = {"memory": max(memory.values()) / BAR_BYTES}
    exponents = {}
    for name, by_size in taken.items():
        medians = {size: statistics.median(times) for size, times in by_size.items()}
        exponents[name] = exponent(list(medians), list(medians.values()))
        print(
            f"{name}: time grows with size to the power {exponents[name]:.2f} (bar {BAR_EXPONENT})",
            flush=True,
        )
        ratios[f"{name} exponent"] = exponents[name] / BAR_EXPONENT
        ratios |= {f"{name} {size}": medians[size] / bar for size, bar in BARS_S.items()}
    verdict = Verdict("placement_scale", "ratio", max(ratios.values()), 1.0, at_least=False)
    setting = {"sizes": SIZES, "repeats": chosen.repeats, "seed": chosen.seed, "tp": TP, "pp": PP}
    samples = {"seconds": taken, "memory_bytes": memory, "exponents": exponents, "ratios": ratios}
    return conclude(verdict, setting=setting, samples=samples)


if __name__ == "__main__":
    raise SystemExit(main())
