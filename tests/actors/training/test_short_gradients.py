"""Gradients kept and summed in bf16: near those in fp32, the same bits every time, and a resume goes on with them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from plans import assemble, changed, demo_job, run_engine, shards, train_job
from torch import nn

from actors.training import optimizer
from actors.training.optimizer import RankOptimizer
from actors.training.parallel.layout import local
from actors.training.precision import keep_gradients_in
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import OptimizerSpec

STEPS = 6
SHAPE: dict[str, Any] = {"global_batch": 8, "sequence_length": 32, "eval_sequences": 4}
MOE = {"experts": 4, "top_k": 2, "ffn_hidden": 64}
NEAR = 2**-8
"""Rounding of one bf16 number. Seen: losses within 3e-4 of those with fp32 gradients, with experts within 1.2e-3."""

PLANS: dict[str, dict[str, Any]] = {
    "ddp": {"dp": 2, "microbatches": 2},
    "zero-2": {"dp": 2, "zero": 2, "microbatches": 2},
}
MORE: dict[str, dict[str, Any]] = {
    "alone": {"microbatches": 4},
    "zero-1": {"dp": 2, "zero": 1, "microbatches": 2},
    "zero-3": {"dp": 2, "zero": 3, "microbatches": 2},
    "hybrid": {"dp": 4, "zero": 2, "dp_shard": 2, "microbatches": 2},
    "tp": {"tp": 2, "dp": 2, "zero": 1, "microbatches": 2},
    "cp": {"cp": 2, "dp": 2, "zero": 2, "microbatches": 2},
    "pipeline": {"pp": 2, "dp": 2, "microbatches": 2},
    "zero-bubble": {"pp": 2, "dp": 2, "zero": 1, "schedule": "zero-bubble", "microbatches": 2},
    "experts": {"dp": 2, "ep": 2, "zero": 2, "microbatches": 2},
    "experts-ddp": {"dp": 2, "ep": 2, "microbatches": 2},
}


def job(plan: dict[str, Any], gradients: str, **training: Any) -> JobSpec:
    shape = {"steps": STEPS, "precision": "bf16", "gradient_precision": gradients}
    spec = demo_job(parallelism=plan, **SHAPE | shape | training)
    return changed(spec, model={"moe": MOE}) if "ep" in plan else spec


@dataclass
class Run:
    losses: list[float]
    norms: list[float]
    formats: set[torch.dtype]
    """Of gradients when the update begins."""
    weights: dict[str, torch.Tensor]


def run(spec: JobSpec) -> Run:
    def body(engine: Any, rank: int) -> Any:
        update, formats = engine.optimizer.step, set()

        def step(rate: float) -> None:
            formats.update(local(p.grad).dtype for _, p in engine.named if p.grad is not None)
            update(rate)

        engine.optimizer.step = step
        results = [engine.train_step(step, stop=False) for step in range(STEPS)]
        return [r.loss for r in results], [r.grad_norm for r in results], formats, shards(engine)

    ranks = run_engine(spec, body)
    losses, norms, _, _ = ranks[0]
    assert all((rank[0], rank[1]) == (losses, norms) for rank in ranks)
    return Run(losses, norms, set().union(*(r[2] for r in ranks)), assemble([r[3] for r in ranks]))


def check(plan: dict[str, Any], **training: Any) -> None:
    spec = job(plan, "bf16", **training)
    short, again, long = run(spec), run(spec), run(job(plan, "fp32", **training))
    assert (short.formats, long.formats) == ({torch.bfloat16}, {torch.float32})
    assert short.losses[0] == long.losses[0], "the first loss knows no gradient"
    assert short.losses[1:] != long.losses[1:]
    # inf and NaN are near nothing.
    assert short.losses == pytest.approx(long.losses, rel=NEAR)
    assert short.norms[0] == pytest.approx(long.norms[0], rel=NEAR)
    assert (again.losses, again.norms) == (short.losses, short.norms)
    for name, weight in short.weights.items():
        assert torch.equal(weight, again.weights[name]), name


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())
def test_losses_are_near_those_of_fp32_gradients_and_repeat_to_the_bit(plan: dict[str, Any]) -> None:
    check(plan)


@pytest.mark.slow
@pytest.mark.parametrize("plan", MORE.values(), ids=MORE.keys())
def test_with_every_other_axis(plan: dict[str, Any]) -> None:
    check(plan)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "training"),
    [
        pytest.param({"dp": 2}, {"optimizer": {"name": "muon"}}, id="muon"),
        pytest.param({"dp": 2, "zero": 2}, {"offload": {"optimizer": "host"}}, id="offload"),
        pytest.param({"dp": 2, "zero": 2}, {"recompute": {"mode": "full"}}, id="recompute"),
        pytest.param({"dp": 2}, {"compile": True}, id="compile"),
    ],
)
def test_with_other_parts_of_training(plan: dict[str, Any], training: dict[str, Any]) -> None:
    check({"microbatches": 2} | plan, **training)


@pytest.mark.slow
def test_resume_is_exact_to_the_bit(tmp_path: Path) -> None:
    spec = job(PLANS["zero-2"], "bf16")
    whole = train_job(spec, tmp_path / "whole")[0]
    train_job(spec, tmp_path / "cut", stop_after=3)
    resumed = train_job(spec, tmp_path / "cut", attempt=2)[0]
    assert [s["step"] for s in resumed.steps] == [4, 5, 6]
    found, wanted = ([(s["loss"], s["grad_norm"]) for s in r.steps] for r in (resumed, whole))
    assert found == wanted[3:]
    assert resumed.of("evaluated") == whole.of("evaluated")


def test_a_sum_is_rounded_once_an_addend() -> None:
    """One and 2^-8 lie half-way between two bf16 numbers and go to the even one, so a second addend of that size is
    lost as the first was. In fp32 they would make 1 + 2^-7."""
    parameter = nn.Parameter(torch.zeros(1))
    keep_gradients_in(torch.bfloat16, [parameter])
    for addend in (1.0, 2**-8, 2**-8):
        (parameter * addend).sum().backward()
        assert parameter.grad is not None
        assert parameter.grad.dtype is torch.bfloat16
    assert parameter.grad.item() == 1.0


def test_the_optimizer_converts_some_gradients_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "CONVERTED_BYTES", 2 * 64 * 4)
    torch.manual_seed(0)
    gradients = [torch.randn(8, 8).bfloat16() for _ in range(5)] + [torch.randn(20, 20).bfloat16()]
    seen: list[int] = []

    def stepped(dtype: torch.dtype) -> list[nn.Parameter]:
        parameters = [nn.Parameter(torch.ones_like(g, dtype=torch.float32)) for g in gradients]
        keep_gradients_in(dtype, parameters)
        rank = RankOptimizer([(str(i), p) for i, p in enumerate(parameters)], OptimizerSpec())
        for inner in rank.optimizers:
            inner.register_step_pre_hook(
                lambda *_: seen.append(sum(p.grad.nbytes for p in parameters if p.grad is not None))
            )
        for _ in range(2):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.to(dtype, copy=True)
            rank.step(1e-2)
        return parameters

    found = stepped(torch.bfloat16)
    assert seen == 2 * [512, 512, 256, 1600]
    for parameter, wanted in zip(found, stepped(torch.float32), strict=True):
        assert torch.equal(parameter, wanted)
