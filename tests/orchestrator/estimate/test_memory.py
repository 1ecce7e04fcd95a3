"""States of training against the numbers of the ZeRO paper, and the engine's forms beside them."""

from __future__ import annotations

import pytest

from orchestrator.estimate.memory import published_layer_activations, published_states, state_bytes
from orchestrator.estimate.share import Formats
from orchestrator.spec.sections import Precision, TrainingSpec

BF16, FP32 = (Formats.of(TrainingSpec(steps=1, precision=p)) for p in (Precision.BF16, Precision.FP32))
SHORT = Formats.of(TrainingSpec(steps=1, precision=Precision.BF16, gradient_precision="bf16"))


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_figure_1_of_the_zero_paper(zero: int, gigabytes: float) -> None:
    """7.5 billion parameters on 64 ranks (Rajbhandari et al. 2020, figure 1)."""
    assert published_states(7.5e9, zero=zero, ranks=64) / 1e9 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("ranks", [1, 2, 64])
def test_the_engine_is_the_published_form_where_formats_do_not_matter(ranks: int) -> None:
    for zero in (0, 3):
        found = state_bytes(1.0, zero=zero, ranks=ranks, formats=BF16, microbatches=4)
        assert found.total == pytest.approx(published_states(1.0, zero=zero, ranks=ranks))


@pytest.mark.parametrize("ranks", [2, 64])
def test_gradients_of_four_bytes_cost_two_more(ranks: int) -> None:
    """Psi more bytes twice (zero 1) and a P-th of them (zero 2): gradients are fp32 where the paper's are fp16."""
    one, two = (state_bytes(1.0, zero=z, ranks=ranks, formats=BF16, microbatches=4).total for z in (1, 2))
    assert one == pytest.approx(published_states(1.0, zero=1, ranks=ranks) + 2)
    assert two == pytest.approx(published_states(1.0, zero=2, ranks=ranks) + 2 / ranks)


@pytest.mark.parametrize("ranks", [2, 64])
def test_gradients_of_two_bytes_are_those_of_the_paper(ranks: int) -> None:
    """Without ZeRO and with zero 3 they save what the paper has in short copies of the parameters."""

    def total(zero: int) -> float:
        return state_bytes(1.0, zero=zero, ranks=ranks, formats=SHORT, microbatches=4).total

    for zero in (1, 2):
        assert total(zero) == pytest.approx(published_states(1.0, zero=zero, ranks=ranks))
    assert (total(0), total(3)) == pytest.approx((14.0, 14.0 / ranks))


def test_one_microbatch_never_holds_whole_gradients() -> None:
    for zero in (1, 2):
        found = state_bytes(1.0, zero=zero, ranks=8, formats=BF16, microbatches=1)
        assert found.total == pytest.approx(2 + 12 / 8)
    assert state_bytes(1.0, zero=2, ranks=1, formats=BF16, microbatches=1).total == 16.0


def test_a_pipeline_keeps_what_is_gathered() -> None:
    kept = [
        state_bytes(1.0, zero=zero, ranks=4, formats=FP32, microbatches=4, pipeline=True)
        for zero in (1, 2, 3)
    ]
    assert kept[0] == kept[1] == kept[2]
    assert kept[0].total == 4 + 4 + 12 / 4


def test_a_layer_of_gpt_3_keeps_what_the_paper_says() -> None:
    """GPT-3, micro-batch 1: 5as/h is 80 (Korthikanti et al. 2022, section 4.1)."""
    shape = {"positions": 2048, "sequences": 1, "hidden": 12288, "heads": 96}
    with_scores = published_layer_activations(**shape, scores=True)
    assert with_scores / published_layer_activations(**shape, scores=False) == pytest.approx((34 + 80) / 34)
