"""fp16 with dynamic loss scaling: a power of two changes no bit, overflows are survived, and a resume is exact."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from plans import assemble, changed, demo_job, run_engine, shards, train_job

from actors.training import loss_scale
from actors.training.loss_scale import LossScale
from orchestrator.spec.sections import Precision

MOE = {"experts": 4, "top_k": 2, "balance_rate": 0.1}
SMALL: dict[str, Any] = {"global_batch": 4, "sequence_length": 32, "eval_sequences": 4}


def test_the_factor_halves_on_overflow_and_doubles_after_many_good_steps() -> None:
    scale = LossScale(8.0, dynamic=True, growth_steps=3)
    scale.grow()
    scale.grow()
    assert scale.overflowed(loss=1.0, gradient_norm=math.inf)
    scale.shrink()
    assert (scale.value, scale.good_steps) == (4.0, 0)
    for _ in range(3):
        scale.grow()
    assert (scale.value, scale.good_steps) == (8.0, 0)


def test_an_overflow_at_one_or_a_loss_that_is_no_number_is_not_the_factors_fault() -> None:
    assert not LossScale(1.0, dynamic=True).overflowed(loss=1.0, gradient_norm=math.inf)
    assert not LossScale(8.0, dynamic=True).overflowed(loss=math.nan, gradient_norm=math.nan)
    fixed = LossScale.of(Precision.BF16)
    assert not fixed.overflowed(loss=1.0, gradient_norm=math.inf)
    fixed.grow()
    assert fixed() == 1.0


def test_the_factor_of_another_precisions_checkpoint_is_not_taken() -> None:
    mine = LossScale.of(Precision.FP16)
    mine.load(LossScale.of(Precision.FP32).state())
    assert mine.value == loss_scale.INITIAL
    mine.load(LossScale(1.0, good_steps=7, dynamic=True).state())
    assert (mine.value, mine.good_steps) == (1.0, 7)


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"microbatches": 2}, id="alone", marks=pytest.mark.slow),
        pytest.param({"tp": 2}, id="tp", marks=pytest.mark.slow),
        pytest.param({"pp": 2, "microbatches": 2}, id="pipeline", marks=pytest.mark.slow),
        pytest.param({"dp": 2, "zero": 3, "ep": 2, "microbatches": 2}, id="zero3-ep"),
    ],
)
def test_scaling_by_a_power_of_two_changes_no_bit(
    plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The auxiliary loss of experts included: it is a part of the loss and would else weigh too little."""
    spec = changed(demo_job(parallelism=plan, steps=3, **SMALL), model={"moe": MOE})

    def body(engine: Any, rank: int) -> Any:
        results = [engine.train_step(step, stop=False) for step in range(3)]
        return [(r.loss, r.grad_norm) for r in results], shards(engine)

    def outcome(factor: float) -> Any:
        monkeypatch.setattr(LossScale, "of", lambda _: LossScale(factor, dynamic=True))
        ranks = run_engine(spec, body)
        return ranks[0][0], assemble([weights for _, weights in ranks])

    scaled, plain = outcome(2.0**20), outcome(1.0)
    assert scaled[0] == plain[0]
    for name, weight in plain[1].items():
        assert (scaled[1][name] == weight).all(), name


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"tp": 2}, id="tp", marks=pytest.mark.slow),
        pytest.param({"pp": 2, "microbatches": 2}, id="pipeline", marks=pytest.mark.slow),
        pytest.param({"dp": 2, "zero": 2, "microbatches": 2}, id="zero2", marks=pytest.mark.slow),
    ],
)
def test_fp16_overflows_are_skipped_and_a_resume_is_exact(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begins with a factor far too large: gradients really overflow, at first always and then now and again."""
    monkeypatch.setattr(loss_scale, "INITIAL", 2.0**24)
    spec = demo_job(parallelism=plan, steps=16, precision="fp16", **SMALL)
    whole = train_job(spec, tmp_path / "whole")[0]
    assert [bool(s.get("skipped")) for s in whole.steps] == [
        not math.isfinite(s["grad_norm"]) for s in whole.steps
    ]
    assert all(math.isfinite(s["loss"]) for s in whole.steps)
    factor = 2.0**24
    for step in whole.steps:
        factor /= 2 if step.get("skipped") else 1
        assert step["loss_scale"] == factor
    skipped = sum(bool(s.get("skipped")) for s in whole.steps)
    assert skipped in (7, 8)  # recorded: 7 with tp and with ZeRO 2, 8 with the pipeline
    assert whole.steps[-1]["loss"] < whole.steps[0]["loss"] - 0.3
    assert whole.of("update-skipped") == [], "an overflow is routine, not news"
    cut = 2  # in the midst of the overflows
    train_job(spec, tmp_path / "cut", stop_after=cut)
    resumed = train_job(spec, tmp_path / "cut", attempt=2)[0]

    def told(steps: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return [(s["step"], s["loss"], str(s["grad_norm"]), s["loss_scale"]) for s in steps]

    assert told(resumed.steps) == told(whole.steps)[cut:]
