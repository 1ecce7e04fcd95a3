"""Recomputation changes no bit and saves what it says: bytes that autograd keeps, counted as they are saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from plans import assemble, demo_job, run_engine, shards
from torch import Tensor

from actors.training.engine import Engine
from actors.training.loss import TokenLoss
from actors.training.parallel.layout import local

SMALL: dict[str, Any] = {"steps": 2, "global_batch": 4, "sequence_length": 64, "eval_sequences": 4}
MODES: dict[str, dict[str, Any]] = {
    "none": {"mode": "none"},
    "selective": {"mode": "selective"},
    "elementwise": {"mode": "elementwise"},
    "half": {"mode": "full", "every": 2},
    "full": {"mode": "full"},
}


def saved_bytes(engine: Engine, forward: Callable[[], Tensor]) -> int:
    """Bytes of the storages that autograd saves in `forward` and that are no parameter's; each counted once."""
    parameters = {local(p).untyped_storage().data_ptr() for _, p in engine.named}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage  # held, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(storage.nbytes() for storage in kept.values())


def outcome(plan: dict[str, Any], recompute: dict[str, Any]) -> Any:
    """Losses, weights and saved bytes of one forward (None where a rank has no whole model)."""
    spec = demo_job(parallelism=plan, recompute=recompute, **SMALL)

    def body(engine: Engine, rank: int) -> Any:
        results = [engine.train_step(step, stop=False) for step in range(2)]
        losses = [(r.loss, r.grad_norm) for r in results]
        size = None
        if spec.parallelism.world_size == 1:
            tokens = torch.zeros(1, 64, dtype=torch.long)
            size = saved_bytes(engine, lambda: TokenLoss(64)(engine.parts[0](tokens), tokens))
        return losses, shards(engine), size

    ranks = run_engine(spec, body)
    return ranks[0][0], assemble([weights for _, weights, _ in ranks]), ranks[0][2]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"microbatches": 2}, id="alone"),
        pytest.param({"dp": 2, "zero": 3, "microbatches": 2}, id="zero3", marks=pytest.mark.slow),
        pytest.param({"pp": 2, "microbatches": 2}, id="pipeline", marks=pytest.mark.slow),
    ],
)
def test_recomputation_changes_no_bit_and_saves_memory(plan: dict[str, Any]) -> None:
    found = {name: outcome(plan, recompute) for name, recompute in MODES.items()}
    losses, weights, _ = found["none"]
    for name, (other, its, _) in found.items():
        assert other == losses, name
        assert all(torch.equal(its[key], weight) for key, weight in weights.items()), name
    sizes = [found[name][2] for name in ("none", "selective", "half", "full")]
    if None not in sizes:
        assert sizes[0] > sizes[1] > sizes[3]
        assert sizes[0] > sizes[2] > sizes[3]
