"""What a job is taken to send, by the formulas of the papers that `estimate.traffic` names."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.placement.demand import Demand, Pattern, workload_of
from orchestrator.spec import parse_spec

HIDDEN, LAYERS, VOCABULARY, POSITIONS, BATCH = 64, 4, 1000, 32, 8
LAYER = 4 * HIDDEN**2 + 3 * HIDDEN * 96 + 2 * HIDDEN
"""Attention with as many keys as queries, a gated feed-forward of 96, two norms."""
TABLE, NORM = VOCABULARY * HIDDEN, HIDDEN


def demands(**plan: Any) -> dict[str, Demand]:
    spec = parse_spec(
        {
            "name": "j",
            "model": {"layers": LAYERS, "hidden": HIDDEN, "heads": 4, "kv_heads": 4, "ffn_hidden": 96},
            "data": {"tokenizer": "bpe", "vocab_size": VOCABULARY},
            "training": {"steps": 1, "global_batch": BATCH, "sequence_length": POSITIONS},
            "parallelism": plan,
        }
    )
    workload = workload_of(spec)
    assert workload is not None
    return {demand.axis: demand for demand in workload.demands}


def test_replicas_sum_all_gradients_behind_backward() -> None:
    """2 psi (P-1)/P elements of 4 bytes."""
    (found,) = demands(dp=4).values()
    psi = LAYERS * LAYER + 2 * TABLE + NORM
    assert found.bytes == pytest.approx(4 * psi * 2 * 3 / 4)
    assert (found.pattern, found.size, found.overlapped) == (Pattern.RING, 4, True)


def test_stages_pass_hidden_states_on_and_gradients_back() -> None:
    """b s h of 4 bytes for each micro-batch, each way to one neighbour."""
    found = demands(pp=2, microbatches=4)["pp"]
    assert found.bytes == 4 * (BATCH * POSITIONS * HIDDEN)
    assert (found.pattern, found.overlapped) == (Pattern.CHAIN, False)


def test_zero_gathers_and_scatters_among_those_who_share() -> None:
    """Stage 1 with two shards: parameters once and gradients once, psi/2 each; copies sum halves between two."""
    found = demands(dp=4, zero=1, dp_shard=2)
    psi = LAYERS * LAYER + 2 * TABLE + NORM
    assert found["shard"].bytes == pytest.approx(4 * psi * 2 / 2)
    assert found["dp"].bytes == pytest.approx(4 * psi / 2 * 2 / 2)


def test_the_first_rank_of_a_v_has_both_ends() -> None:
    """zbv: rank 0 holds stages 0 and 3, so embedding and head; of other schedules no rank has both."""
    found = demands(pp=2, dp=2, microbatches=2, schedule="zbv", virtual_stages=2)
    assert found["dp"].bytes == pytest.approx(4 * (2 * LAYER + 2 * TABLE + NORM))
    interleaved = demands(pp=2, dp=2, microbatches=2, schedule="interleaved-1f1b", virtual_stages=2)
    assert interleaved["dp"].bytes == pytest.approx(4 * (2 * LAYER + TABLE + NORM))
