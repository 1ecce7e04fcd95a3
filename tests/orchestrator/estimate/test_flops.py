"""Model FLOPs against published models' sizes; peaks of devices."""

from __future__ import annotations

import pytest

from orchestrator.estimate.flops import flops_per_token, weights_passed
from orchestrator.estimate.hardware import peak_flops
from orchestrator.spec.sections import ModelSpec, MoeSpec, Precision

LLAMA2_7B = ModelSpec(layers=32, hidden=4096, heads=32, kv_heads=32, ffn_hidden=11008)
MIXTRAL_8X7B = ModelSpec(
    layers=32, hidden=4096, heads=32, kv_heads=8, ffn_hidden=14336, moe=MoeSpec(experts=8, top_k=2)
)


def test_llama_2_7b_passes_all_its_weights_but_embedding_and_norms() -> None:
    parameters = 6_738_415_616  # of the published checkpoint
    embedding, norms = 32_000 * 4096, (2 * 32 + 1) * 4096
    assert weights_passed(LLAMA2_7B, vocab_size=32_000) == parameters - embedding - norms


def test_mixtral_passes_two_of_eight_experts() -> None:
    # 46.7 billion parameters, 12.9 billion of them active (Jiang et al. 2024, section 2), embedding included.
    active = weights_passed(MIXTRAL_8X7B, vocab_size=32_000) + 32_000 * 4096
    assert active == pytest.approx(12.9e9, rel=0.005)


def test_attention_counts_the_causal_half() -> None:
    short, long = (flops_per_token(LLAMA2_7B, vocab_size=32_000, positions=s) for s in (2048, 4096))
    # A position sees 1024 more on average: scores and values are 2 products of 2 FLOPs, three times (backward twice).
    assert long - short == 32 * 4096 * 1024 * 2 * 2 * 3
    assert short == 6 * 6_607_077_376 + 6 * 32 * 4096 * 2048


@pytest.mark.parametrize(
    ("name", "precision", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", Precision.BF16, 989.4),
        ("NVIDIA H100 PCIe", Precision.BF16, 756),
        ("NVIDIA A100-SXM4-40GB", Precision.FP16, 312),
        ("NVIDIA A100-SXM4-40GB", Precision.FP32, 19.5),
        ("NVIDIA GB200", Precision.BF16, 2500),
        ("NVIDIA H100 80GB HBM3", Precision.FP8, 1978.9),
    ],
)
def test_peaks_by_the_drivers_name(name: str, precision: Precision, tera: float) -> None:
    assert peak_flops(name, precision) == pytest.approx(tera * 1e12)


def test_unknown_devices_and_formats_have_no_peak() -> None:
    assert peak_flops(None, Precision.BF16) is None
    assert peak_flops("Some New Device", Precision.BF16) is None
    assert peak_flops("NVIDIA L40S", Precision.FP64) is None
    assert peak_flops("NVIDIA A100-SXM4-80GB", Precision.FP8) is None
    assert peak_flops("cpu", Precision.FP32) is None
