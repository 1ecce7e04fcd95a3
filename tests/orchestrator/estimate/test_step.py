"""Steps: parts, ideals and directions; published runs are in test_accuracy.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.estimate.flops import flops_per_token
from orchestrator.estimate.hardware import accelerators
from orchestrator.estimate.network import default_network
from orchestrator.estimate.step import (
    Convention,
    StepSeconds,
    model_flops,
    rate,
    stage_layers,
    step_seconds,
    time_to,
)
from orchestrator.estimate.workload import Again, Workload
from orchestrator.spec import parse_spec

H100 = accelerators()["H100-SXM"]
MOE = {"experts": 8, "top_k": 2, "ffn_hidden": 4096}


def job(model: dict[str, Any] | None = None, training: dict[str, Any] | None = None, **plan: Any) -> Any:
    return parse_spec(
        {
            "name": "j",
            "model": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336}
            | (model or {}),
            "data": {"tokenizer": "bpe", "vocab_size": 32_000},
            "training": {"steps": 10, "global_batch": 64, "sequence_length": 4096, "precision": "bf16"}
            | (training or {}),
            "parallelism": plan,
        }
    )


def step(spec: Any) -> StepSeconds:
    work = Workload.of(spec)
    return step_seconds(work, H100, default_network(H100, work.plan.world_size))


def test_parts_add_up_to_the_step() -> None:
    found = step(job(tp=2, pp=4, dp=2, microbatches=8, zero=1))
    parts = found.forward + found.backward + found.again + found.bubble + found.optimizer
    assert found.total == pytest.approx(parts + sum(found.exposed.values()))
    assert set(found.exposed) == {"tp", "pp", "shard"}
    assert min(found.forward, found.backward, found.bubble, found.optimizer) > 0


def test_no_step_beats_the_peak() -> None:
    for plan in ({"dp": 8, "zero": 3}, {"tp": 8}, {"pp": 8, "microbatches": 32}):
        spec = job(**plan)
        work = Workload.of(spec)
        assert 0.05 < rate(work, H100, step(spec).total, Convention.CAUSAL).mfu < 0.78


def test_the_bubble_is_that_of_the_schedule() -> None:
    """Stages alike (embedding and head are small): (p-1)/m of the work, over v when interleaved."""
    plan = {"pp": 4, "microbatches": 16}
    plain = step(job(**plan))
    work = plain.forward + plain.backward + plain.exposed["pp"]
    assert plain.bubble == pytest.approx(3 / 16 * work, rel=0.06)
    twice = step(job(**plan, schedule="interleaved-1f1b", virtual_stages=2))
    assert twice.bubble == pytest.approx(plain.bubble / 2, rel=0.06)


def test_recompute_costs_a_forward_of_the_layers() -> None:
    plain = step(job(dp=8, zero=3))
    full = step(job(training={"recompute": {"mode": "full"}}, dp=8, zero=3))
    half = step(job(training={"recompute": {"mode": "full", "every": 2}}, dp=8, zero=3))
    assert plain.again == 0
    assert 0.85 * full.forward < full.again < full.forward  # all but embedding and head
    assert half.again == pytest.approx(full.again / 2)


def test_tensor_groups_across_islands_pay_more_for_less_work() -> None:
    """Eight NICs abreast have about NVLink's rate here, but 15 steps of a network cost more than 7 of NVLink."""
    inside, across = step(job(model={"kv_heads": 16}, tp=8)), step(job(model={"kv_heads": 16}, tp=16))
    assert across.exposed["tp"] > inside.exposed["tp"]
    assert across.forward > inside.forward / 2


def test_megatrons_order_puts_replicas_before_stages() -> None:
    work = Workload.of(job(tp=8, pp=2, dp=2, microbatches=4))
    assert (work.stride("pp"), work.stride("dp")) == (8, 16)
    megatron = replace(work, axes=("tp", "cp", "dp", "pp"))
    assert (megatron.stride("dp"), megatron.stride("pp")) == (8, 16)


def test_model_flops_are_those_of_step_records() -> None:
    for model in ({}, {"moe": MOE}):
        spec = job(model=model)
        tokens = 64 * 4096
        wanted = tokens * flops_per_token(spec.model, vocab_size=32_000, positions=4096)
        assert model_flops(Workload.of(spec), Convention.CAUSAL) == pytest.approx(wanted, rel=1e-12)


def test_the_full_convention_counts_attention_twice() -> None:
    work = Workload.of(job())
    causal, full = (model_flops(work, c) for c in (Convention.CAUSAL, Convention.FULL))
    assert full - causal == 64 * 4096 * 6 * 32 * 4096 * 4096


def test_time_to_a_budget_counts_whole_steps() -> None:
    work = Workload.of(job(dp=8))
    seconds, gpu_hours = time_to(64 * 4096 * 2.5, work, 10.0)
    assert seconds == 30.0
    assert gpu_hours == pytest.approx(8 * 30 / 3600)


def test_stages_hold_all_layers_once() -> None:
    spec = job(model={"moe": MOE | {"dense_layers": 3}}, training={"global_batch": 60}, pp=5, microbatches=5)
    work = Workload.of(spec)
    counts = stage_layers(work.architecture, work.plan)
    assert sum(plain for plain, _ in counts) == 3
    assert sum(experts for _, experts in counts) == 29


def test_experts_over_ranks_trade_rows() -> None:
    spec = job(model={"moe": MOE}, dp=8, zero=1, ep=8)
    assert step(spec).exposed["ep"] > 0
    assert "ep" not in step(job(model={"moe": MOE}, dp=8, zero=1)).exposed


def test_gradients_of_experts_are_summed_by_those_who_hold_the_same() -> None:
    """Experts over all ranks have no copies: what is summed is the dense part, 2 * 32,000 * 4096 of the tables and in
    each of 32 layers attention of 4096 * (2 * 4096 + 2 * 1024). Hidden behind
    nothing, a ring over 8 ranks takes 2 * 7/8 n / beta and 14 latencies; with the experts of a rank n would be twice
    as large."""
    spec = job(model={"moe": MOE}, dp=8, ep=8)
    work = Workload.of(spec)
    work = replace(work, stack=replace(work.stack, hides_dp=False))
    network = default_network(H100, 8)
    dense = 2 * 32_000 * 4096 + 32 * 4096 * (2 * 4096 + 2 * 1024)
    beta = network.hops[0].path.rate(dense * 4)
    latency_s = 2 * 7 * network.hops[0].path.latency_s
    summed = step_seconds(work, H100, network).exposed["dp"]
    assert summed == pytest.approx(2 * 7 / 8 * dense * 4 / beta + latency_s, rel=1e-6)


def test_experts_of_two_groups_are_summed_between_them() -> None:
    """ep 4 of 8 data ranks: each expert lies on two ranks, 4 apart. With tp 2, ep 4 is 2 tensor x 2 data ranks of 8."""
    work = Workload.of(job(model={"moe": MOE}, dp=8, ep=4))
    assert work.state_groups(experts=True)[1] == ((1, 1), (1, 1), (4, 2))
    shared = Workload.of(job(model={"moe": MOE}, tp=2, dp=8, ep=4, zero=1))
    assert shared.state_groups(experts=True) == (((2, 1), (2, 1), (4, 4)), ((16, 1),))


def test_an_imported_model_has_no_estimate() -> None:
    spec = parse_spec({"name": "j", "model": {"import": "m:f"}, "training": {"steps": 1}})
    with pytest.raises(ValueError, match=r"model\.import"):
        Workload.of(spec)


def test_again_is_what_job_files_say() -> None:
    assert {mode.value for mode in Again} >= {"none", "selective", "full"}
