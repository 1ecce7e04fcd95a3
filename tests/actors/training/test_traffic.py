"""B3: bytes that ranks send in a step, counted in the process groups, equal the formulas within 1 %."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from gang import run_ranks
from plans import changed, demo_job
from traffic_plans import Measured, expected, measure, route_evenly

from actors.pulse import Pulse
from actors.training.metrics.traffic import Traffic
from orchestrator.spec import JobSpec

MOE = {"experts": 4, "top_k": 2, "ffn_hidden": 64}
WITHIN = 0.01

BATCH, POSITIONS, HIDDEN, LAYERS = 8, 32, 64, 4
KEY_VALUE = 2 * 2 * 16
"""Elements of a position's keys and values: two heads of 16 in the demo's model."""
PSI = 256 * 64 * 2 + 4 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 192 + 2 * 64) + 64
"""Parameters of the demo's model, counted by hand: embedding and head, four layers, the last norm."""
FP32 = 4
SHORT = {"precision": "bf16", "gradient_precision": "bf16"}


def job(plan: dict[str, Any], *, moe: dict[str, Any] | None = None, **training: Any) -> JobSpec:
    spec = demo_job(
        parallelism={"microbatches": 1} | plan,
        global_batch=BATCH,
        sequence_length=POSITIONS,
        steps=4,
        **training,
    )
    return spec if moe is None else changed(spec, model={"moe": moe})


def assert_as_expected(spec: JobSpec, ranks: list[Measured]) -> None:
    for rank, measured in enumerate(ranks):
        sent = {axis: count for axis, count in measured.sent.items() if axis != "control"}
        wanted = expected(spec, measured.stages)
        assert sent == pytest.approx(wanted, rel=WITHIN), f"rank {rank}"


def check(spec: JobSpec) -> list[dict[str, float]]:
    ranks = measure(spec, None if spec.model.moe is None else route_evenly)
    assert_as_expected(spec, ranks)
    return [measured.sent for measured in ranks]


# Five axes against the formulas as they are published, with numbers of the demo's model.


def test_data_parallel_ring() -> None:
    for sent in check(job({"dp": 2})):
        assert sent["dp"] == pytest.approx(2 * PSI * FP32 * 1 / 2, rel=WITHIN)


def test_gradients_of_two_bytes() -> None:
    for sent in check(job({"dp": 2}, **SHORT)):
        assert sent["dp"] == pytest.approx(2 * PSI * 2 * 1 / 2, rel=WITHIN)


def test_zero_3() -> None:
    for sent in check(job({"dp": 2, "zero": 3})):
        assert sent["shard"] == pytest.approx(3 * PSI * FP32 * 1 / 2, rel=WITHIN)


def test_tensor_and_pipeline() -> None:
    m = 2
    states = BATCH // m * POSITIONS * HIDDEN * FP32
    loss = 2 * 3 * BATCH * POSITIONS * FP32 * 1 / 2
    for sent, ends in zip(check(job({"tp": 2, "pp": 2, "microbatches": m})), (0, 0, loss, loss), strict=True):
        all_reduce = 2 * states * 1 / 2
        # Two layers a stage with four all-reduces each, and one for the embedding or the head.
        assert sent["tp"] == pytest.approx(m * (4 * LAYERS / 2 + 1) * all_reduce + ends, rel=WITHIN)
        assert sent["pp"] == m * states / 2


def test_context_gathers_keys_and_values() -> None:
    c = 2
    forward = BATCH * POSITIONS / c * KEY_VALUE * (c - 1) * FP32
    for sent in check(job({"cp": c})):
        assert sent["cp"] == pytest.approx(2 * LAYERS * forward, rel=WITHIN)


def test_experts_exchange_rows() -> None:
    rows = BATCH / 2 * POSITIONS * MOE["top_k"] * HIDDEN * FP32 * 1 / 2
    for sent in check(job({"dp": 2, "ep": 2}, moe=MOE)):
        assert sent["ep"] == pytest.approx(4 * LAYERS * rows, rel=WITHIN)


MORE: dict[str, JobSpec] = {
    "accumulation": job({"dp": 2, "microbatches": 4}),
    "zero-1": job({"dp": 2, "zero": 1, "microbatches": 2}),
    "zero-2": job({"dp": 2, "zero": 2, "microbatches": 2}),
    "zero-3-accumulation": job({"dp": 2, "zero": 3, "microbatches": 2}),
    "zero-3-kept": job({"dp": 2, "zero": 3, "microbatches": 2, "reshard_after_forward": False}),
    "zero-3-neighbours": job({"dp": 4, "zero": 3, "reshard_after_forward": 2}),
    "zero-3-bf16": job({"dp": 2, "zero": 3}, precision="bf16"),
    "hybrid": job({"dp": 4, "zero": 3, "dp_shard": 2}, precision="fp64"),
    "zero-2-short-gradients": job({"dp": 2, "zero": 2, "microbatches": 2}, **SHORT),
    "hybrid-short-gradients": job({"dp": 4, "zero": 3, "dp_shard": 2, "microbatches": 2}, **SHORT),
    "tp-zero-bf16": job({"tp": 2, "dp": 2, "zero": 3}, precision="bf16"),
    "pp-zero-bf16": job({"pp": 2, "dp": 2, "zero": 1, "microbatches": 2}, precision="bf16"),
    "tp-short-gradients": job({"tp": 2, "dp": 2}, **SHORT),
    "hybrid-zero-1": job({"dp": 4, "zero": 1, "dp_shard": 2, "microbatches": 2}),
    "tp-without-sequence": job({"tp": 2, "sequence": False}),
    "tp-bf16": job({"tp": 2}, precision="bf16"),
    "tp-recompute": job({"tp": 2}, recompute={"mode": "full"}),
    "tp-recompute-every-2": job({"tp": 2, "sequence": False}, recompute={"mode": "full", "every": 2}),
    "ring": job({"cp": 2, "context": "ring"}),
    "ulysses": job({"cp": 2, "context": "ulysses"}),
    "ulysses-bf16": job({"cp": 2, "context": "ulysses"}, precision="bf16"),
    "cp-selective": job({"cp": 2}, recompute={"mode": "selective"}),
    "cp-elementwise": job({"cp": 2}, recompute={"mode": "elementwise"}),
    "tp-elementwise": job({"tp": 2}, recompute={"mode": "elementwise"}),
    "tp-plain-elementwise": job({"tp": 2, "sequence": False}, recompute={"mode": "elementwise"}),
    "tp-cp": job({"tp": 2, "cp": 2}),
    "gpipe": job({"pp": 2, "microbatches": 4, "schedule": "gpipe"}),
    "interleaved": job({"pp": 2, "virtual_stages": 2, "schedule": "interleaved-1f1b", "microbatches": 2}),
    "zbv": job({"pp": 2, "virtual_stages": 2, "schedule": "zbv", "microbatches": 4}),
    "pp-zero-2": job({"pp": 2, "dp": 2, "zero": 2, "microbatches": 2}),
    "tp-pp-dp": job({"tp": 2, "pp": 2, "dp": 2, "microbatches": 2}),
    "experts-zero-3": job({"dp": 4, "ep": 2, "zero": 3}, moe=MOE),
    "experts-tp": job({"tp": 2, "dp": 2, "ep": 2}, moe={**MOE, "shared_experts": 1}),
    "experts-cp-capacity": job({"cp": 2, "ep": 2}, moe={**MOE, "capacity_factor": 1.5}),
    "experts-recompute": job({"dp": 2, "ep": 2}, moe=MOE, recompute={"mode": "full"}),
    "experts-elementwise": job({"dp": 2, "ep": 2}, moe=MOE, recompute={"mode": "elementwise"}),
    "experts-bf16": job({"dp": 2, "ep": 2}, moe=MOE, precision="bf16"),
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", MORE.values(), ids=MORE.keys())
def test_every_other_plan(spec: JobSpec) -> None:
    check(spec)


def test_each_kind_is_counted_by_the_rings_rule() -> None:
    def program(rank: int, store: Any) -> dict[tuple[str, str], float]:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=2)
        world, other = dist.group.WORLD, dist.new_group([0, 1])
        before = dict(dist.ProcessGroup.__dict__)
        traffic = Traffic({world: "a"}.get, Pulse())
        ten, twenty = torch.zeros(10), torch.zeros(20)
        with traffic.counting():
            dist.all_reduce(ten)
            dist.all_reduce(ten, group=other)  # not a group that is counted
            dist.all_gather_single(twenty, ten)
            dist.all_gather([torch.zeros(10), torch.zeros(10)], ten)
            dist.reduce_scatter_single(ten, twenty)
            dist.all_to_all_single(twenty, twenty)
            rows = [[3, 1], [2, 2]]
            received = torch.zeros(rows[0][rank] + rows[1][rank], 5)
            dist.all_to_all_single(received, torch.zeros(4, 5), [rows[0][rank], rows[1][rank]], rows[rank])
            dist.broadcast(ten, 0)
            if rank == 0:
                dist.isend(ten, 1).wait()
            else:
                dist.recv(ten, 0)
        dist.all_reduce(ten)  # not while counting
        assert dict(dist.ProcessGroup.__dict__) == before
        assert traffic.waited_s.keys() == {"a"}
        assert traffic.waited_total_s == pytest.approx(traffic.waited_s["a"])
        dist.barrier()
        return dict(traffic.sent_bytes)

    first, second = run_ranks(2, program)
    both = {
        ("a", "all-reduce"): 40.0,
        ("a", "all-gather"): 2 * 40.0,
        ("a", "reduce-scatter"): 40.0,
        ("a", "broadcast"): 20.0,
    }
    # Equal parts: 40 bytes leave. Given rows of 20 bytes: rank 0 keeps 3 of 4, rank 1 two.
    assert first == both | {("a", "all-to-all"): 40.0 + 20.0, ("a", "send"): 40.0}
    assert second == both | {("a", "all-to-all"): 40.0 + 40.0, ("a", "receive"): 0.0}
