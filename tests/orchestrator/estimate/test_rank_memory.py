"""Memory of a rank, by part; published figures are in test_accuracy.py, the engine's own in tests/actors."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.estimate.memory import layer_activations
from orchestrator.estimate.rank_memory import RESERVED_BYTES, in_flight, layer_bytes, rank_memory
from orchestrator.estimate.share import Formats
from orchestrator.estimate.workload import Again, Workload
from orchestrator.spec import parse_spec
from orchestrator.spec.sections import ParallelismSpec


def job(precision: str = "bf16", mode: str = "none", **plan: Any) -> Any:
    return parse_spec(
        {
            "name": "j",
            "model": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336},
            "data": {"tokenizer": "bpe", "vocab_size": 32_000},
            "training": {
                "steps": 10,
                "global_batch": 64,
                "sequence_length": 4096,
                "precision": precision,
                "recompute": {"mode": mode},
            },
            "parallelism": plan,
        }
    )


def memory(spec: Any) -> Any:
    return rank_memory(Workload.of(spec), Formats.of(spec.training))


@pytest.mark.parametrize(
    ("plan", "rank", "wanted"),
    [
        ({"pp": 4, "microbatches": 16, "schedule": "gpipe"}, 0, 16),
        ({"pp": 4, "microbatches": 16}, 0, 4),
        ({"pp": 4, "microbatches": 16}, 3, 1),
        # Korthikanti et al. 2022, section 4.2.3, for GPT-3: p (1 + (p-1)/(p v)) = 8 (1 + 7/24).
        (
            {"pp": 8, "microbatches": 64, "schedule": "interleaved-1f1b", "virtual_stages": 3},
            0,
            8 * (1 + 7 / 24),
        ),
        ({"pp": 4, "microbatches": 16, "schedule": "zero-bubble"}, 0, 4),
        ({"pp": 4, "microbatches": 16, "schedule": "zbv", "virtual_stages": 2}, 2, 4),
        ({"microbatches": 16}, 0, 1),
    ],
)
def test_micro_batches_in_flight(plan: dict[str, Any], rank: int, wanted: float) -> None:
    assert in_flight(ParallelismSpec(**plan), rank) == pytest.approx(wanted)


def test_states_are_sixteen_bytes_a_parameter() -> None:
    # Zero 0 in bf16: parameters, gradients and two moments of four bytes; norms are left out.
    found = memory(job())
    psi = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) + 2 * 32_000 * 4096
    assert found.parameters == found.gradients == pytest.approx(4 * psi)
    assert found.optimizer == pytest.approx(8 * psi)


def test_a_layer_keeps_what_the_formula_for_the_engine_says() -> None:
    """In fp32 without splits: `memory.layer_activations`, which counts the log-sum-exp and factors of norms too."""
    for mode in ("none", "selective", "elementwise", "full"):
        spec = job("fp32", mode)
        found = layer_bytes(Workload.of(spec), Again(mode), experts=False)
        assert found == pytest.approx(layer_activations(spec, sequences=64, mode=mode), rel=0.01)


def test_tensor_ranks_split_activations() -> None:
    whole, split = (memory(job(tp=tp)).activations for tp in (1, 8))
    assert split < whole / 3.5  # the gathered inputs of regions stay whole


def test_recompute_saves_activations() -> None:
    none, selective, full = (memory(job("fp32", mode)).activations for mode in ("none", "selective", "full"))
    assert full < selective / 10 < none / 10


def test_autocast_keeps_copies_of_weights() -> None:
    """Two bytes a weight of the layers and micro-batch in flight; with ZeRO what is gathered is short already."""
    copied, gathered = (memory(job(**plan)).activations for plan in ({"dp": 2}, {"dp": 2, "zero": 1}))
    weights = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
    assert copied - gathered == pytest.approx(2 * weights)


def test_the_last_stage_has_the_logits() -> None:
    """Of a micro-batch of 4,096 tokens: 2 + 4 + 4 + 4 bytes each, without recompute of the loss."""
    spec = job(mode="full", pp=2, microbatches=64)
    found = memory(spec)
    assert found.buffers - RESERVED_BYTES > 4096 * 32_000 * 14


def test_parts_are_the_sum() -> None:
    found = memory(job(dp=8, zero=3))
    assert found.total == sum(found.parts.values())
    assert list(found.parts) == ["parameters", "gradients", "optimizer", "activations", "buffers"]


SMALL = {"layers": 4, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn_hidden": 128}
SMALL_PSI = 4 * (64 * (2 * 64 + 2 * 32) + 3 * 64 * 128) + 2 * 256 * 64


def small(*, dp: int = 2, **plan: Any) -> Any:
    document = job(dp=dp, **plan).model_dump(mode="json")
    document["training"]["global_batch"] = 2 * dp
    return parse_spec(document | {"model": SMALL, "data": {"vocab_size": 256}})


def test_zero_gathers_a_small_model_whole() -> None:
    """In bf16: two bytes of what is gathered and four of its gradients, and four parts in a hundred more. Without
    `bucket_mb` two layers of four are gathered, each with a quarter of the tables, and one sums."""
    whole, layered = (memory(small(zero=3, bucket_mb=size)).buffers for size in (25, 0))
    assert whole - layered == pytest.approx(1.04 * SMALL_PSI * (2 * (1 - 2 / 4) + 4 * (1 - 1 / 4)))


def test_units_of_a_large_model_are_layers() -> None:
    default, layered = (memory(job(dp=8, zero=3, **plan)).buffers for plan in ({}, {"bucket_mb": 0}))
    assert default == layered


def test_a_bucket_of_gradients_is_on_its_way_to_replicas() -> None:
    """Of a small model all of them; of a large one the embedding, which has more than a bucket takes."""
    alone, two = (memory(small(dp=dp)).buffers for dp in (1, 2))
    assert two - alone == pytest.approx(1.04 * 4 * SMALL_PSI)
