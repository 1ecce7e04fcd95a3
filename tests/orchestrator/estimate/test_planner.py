"""The search: it finds what exhaustive listing finds, fits, validates, and is fast."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.estimate import planner
from orchestrator.estimate.candidates import candidates, divisors
from orchestrator.estimate.hardware import accelerators
from orchestrator.estimate.network import default_network, network_of
from orchestrator.estimate.planner import PlanCost, Search, fits, plan_cost, search
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement
from orchestrator.placement.solver import solve
from orchestrator.spec import JobSpec, parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node

A100 = accelerators()["A100-SXM-80GB"]


def cluster(accelerators: int, *, leaf: int = 4096) -> Fabric:
    """Nodes of eight, every node an island, `leaf` accelerators under a leaf."""
    return Fabric(
        tuple(
            Node(
                f"n{n}",
                8,
                {Tier.ISLAND: f"i{n}", Tier.LEAF: f"l{8 * n // leaf}", Tier.SPINE: "s"},
                accelerator="A100-80GB",
            )
            for n in range(accelerators // 8)
        )
    )


def gpt(layers: int, hidden: int, heads: int, batch: int, **plan: Any) -> JobSpec:
    """A decoder with the parameters of a GPT of that size: 3 h f = 8 h h, f a multiple of 512."""
    recompute = plan.pop("recompute", "none")
    return parse_spec(
        {
            "name": "j",
            "model": {
                "layers": layers,
                "hidden": hidden,
                "heads": heads,
                "kv_heads": heads,
                "ffn_hidden": round(8 * hidden / 3 / 512) * 512,
            },
            "data": {"tokenizer": "bpe", "vocab_size": 51_200},
            "training": {
                "steps": 100,
                "global_batch": batch,
                "sequence_length": 2048,
                "precision": "bf16",
                "recompute": {"mode": recompute},
            },
            "parallelism": plan,
        }
    )


def mixture(*, experts: int, batch: int, positions: int) -> JobSpec:
    return parse_spec(
        {
            "name": "j",
            "model": {
                "layers": 16,
                "hidden": 4096,
                "heads": 32,
                "kv_heads": 8,
                "ffn_hidden": 8192,
                "moe": {"experts": experts, "top_k": 2},
            },
            "data": {"tokenizer": "bpe", "vocab_size": 32_000},
            "training": {
                "steps": 1,
                "global_batch": batch,
                "sequence_length": positions,
                "precision": "bf16",
            },
        }
    )


def valid(cost: PlanCost, fabric: Fabric) -> None:
    """What C5 asks of every proposal."""
    spec = cost.spec
    assert parse_spec(spec.model_dump(mode="json", exclude_unset=True)) == spec
    assert fits(cost.memory, A100)
    placed = solve(
        Mesh.of(spec.parallelism), spec.placement, fabric, fabric.slots(), resources=spec.resources
    )
    assert isinstance(placed, Placement)


def found_on(spec: JobSpec, fabric: Fabric, ranks: int) -> Search:
    return search(spec, A100, network_of(fabric, A100), ranks=ranks, fabric=fabric)


def test_divisors() -> None:
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(1) == [1]


def test_proposals_are_the_fastest_of_all_that_fit() -> None:
    """Every candidate costed one by one, on a cluster small enough."""
    fabric = cluster(8)
    spec = gpt(12, 2304, 24, 8)
    network = network_of(fabric, A100)
    found = found_on(spec, fabric, 8)
    fastest: dict[Any, float] = {}
    for candidate in candidates(spec, 8, network):
        recompute = {"mode": candidate.recompute}
        job = spec.model_copy(
            update={
                "parallelism": candidate.plan,
                "training": spec.training.model_copy(
                    update={"recompute": spec.training.recompute.model_copy(update=recompute)}
                ),
            }
        )
        cost = plan_cost(job, A100, network)
        plan = candidate.plan
        kind = (plan.tp, plan.cp, plan.pp, plan.ep, plan.zero, candidate.recompute)
        if fits(cost.memory, A100):
            fastest[kind] = min(cost.step.total, fastest.get(kind, cost.step.total))
    assert [cost.step.total for cost in found.best] == pytest.approx(sorted(fastest.values())[:10])
    for cost in found.best:
        valid(cost, fabric)


def test_every_plan_is_counted() -> None:
    found = found_on(gpt(24, 2304, 24, 16), cluster(16), 16)
    assert sum(found.lost.values()) + len(found.best) == found.considered
    assert set(found.lost) <= {"memory", "refused", "bubble", "communication", "recompute", "compute"}


def test_plans_that_nobody_tried_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 ranks have no place on 16 accelerators: the search gives up after ten meshes, each tried once."""
    asked: list[Mesh] = []

    def counting(mesh: Mesh, *rest: Any, **more: Any) -> Any:
        asked.append(mesh)
        return solve(mesh, *rest, **more)

    monkeypatch.setattr(planner, "solve", counting)
    monkeypatch.setattr(planner, "MOST_UNPLACED", 10)
    spec = mixture(experts=16, batch=8, positions=2048)
    found = search(spec, A100, default_network(A100, 64), ranks=64, fabric=cluster(16))
    assert found.best == ()
    assert len(asked) == len(set(asked)) == 10
    assert found.lost["refused"] >= 10
    assert found.lost["untried"] > 0
    assert sum(found.lost.values()) == found.considered


def test_what_does_not_fit_is_never_proposed() -> None:
    """A trillion parameters on eight accelerators: 16 TB of states against 640 GB."""
    found = found_on(gpt(128, 25600, 160, 8), cluster(8), 8)
    assert found.best == ()
    assert found.lost == {"memory": found.considered}


def test_rules_of_placement_hold() -> None:
    """Pipelines must stay under a leaf of 32, tensor groups in an island of 8."""
    fabric = cluster(128, leaf=32)
    found = found_on(gpt(48, 8192, 64, 128), fabric, 128)
    assert found.best
    for cost in found.best:
        valid(cost, fabric)
        plan = cost.spec.parallelism
        assert plan.tp <= 8
        assert plan.pp == 1 or plan.tp * plan.cp * plan.pp <= 32


def test_experts_and_long_contexts_are_searched() -> None:
    spec = mixture(experts=16, batch=2, positions=32_768)
    fabric = cluster(16)
    found = found_on(spec, fabric, 16)
    assert found.best
    for cost in found.best:
        valid(cost, fabric)
    # Two sequences on 16 ranks: other axes than dp take eight.
    assert all(cost.spec.parallelism.dp <= 2 for cost in found.best)
    assert any(cost.spec.parallelism.ep > 1 for cost in found.best)


def test_a_search_over_1024_takes_seconds() -> None:
    fabric = cluster(1024)
    spec = gpt(60, 10240, 80, 1792)
    begun = time.process_time()
    found = found_on(spec, fabric, 1024)
    assert time.process_time() - begun < 10
    assert len(found.best) == 10
    assert found.considered > 5_000


PUBLISHED = ("megatron_sc21_table1.csv", "korthikanti_table5.csv")
ROWS = [(PUBLISHED[0], n) for n in range(10)] + [(PUBLISHED[1], n) for n in range(4)]
QUICK = {(PUBLISHED[0], 0), (PUBLISHED[0], 5), (PUBLISHED[1], 1)}


@pytest.mark.parametrize(
    ("table", "number"),
    [pytest.param(*row, marks=() if row in QUICK else pytest.mark.slow) for row in ROWS],
)
def test_the_search_finds_the_published_plan_or_a_faster_one(
    shared_data: Path, table: str, number: int
) -> None:
    """C5, with the plan's own recompute and the sequence parallelism of this engine."""
    with (shared_data / "tables" / table).open(newline="", encoding="utf-8") as stream:
        row = list(csv.DictReader(stream))[number]
    layers, pp, dp, gpus = (int(row[key]) for key in ("layers", "pp", "dp_derived", "gpus"))
    per_stage = row.get("layers_per_virtual_stage") or None
    virtual = layers // pp // int(per_stage) if per_stage else int(row.get("interleave") or 1)
    batch = int(row["global_batch"])
    spec = gpt(
        layers,
        int(row["hidden"]),
        int(row["heads"]),
        batch,
        tp=int(row["tp"]),
        pp=pp,
        dp=dp,
        microbatches=batch // dp // int(row["micro_batch"]),
        schedule="interleaved-1f1b" if virtual > 1 else "1f1b",
        virtual_stages=virtual,
        recompute="full",
    )
    fabric = cluster(gpus)
    assert spec.parallelism.world_size == gpus
    published = plan_cost(spec, A100, network_of(fabric, A100))
    found = found_on(spec, fabric, gpus)
    assert found.best
    assert found.best[0].step.total <= published.step.total
    for cost in found.best:
        valid(cost, fabric)


def test_a_network_without_a_fabric_will_do() -> None:
    found = search(gpt(24, 2304, 24, 64), A100, default_network(A100, 8), ranks=8)
    assert len(found.best) == 10
