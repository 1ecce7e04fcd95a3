"""Issue 3, B7: our logits are those of Hugging Face transformers, and what we write it reads back to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import CONFIGS, POSITIONS, foreign_model, load_foreign, own_model, tokens

from actors.training.interchange.config import read_config
from actors.training.interchange.export import export_model

TOLERANCE = 1e-5


@pytest.mark.parametrize("kind", CONFIGS)
@torch.no_grad()
def test_logits_and_both_ways_to_the_bit(kind: str, tmp_path: Path) -> None:
    theirs = foreign_model(kind)
    theirs.save_pretrained(tmp_path)
    ours, found = own_model(tmp_path, torch.float32)
    expected = theirs(tokens()).logits
    assert expected.abs().max() > 1  # not all alike: the weights are far from zero
    assert (ours(tokens()) - expected).abs().max() < TOLERANCE

    out = tmp_path / "out"
    out.mkdir()
    held = {name: p.detach() for name, p in ours.named_parameters()}
    export_model(
        out,
        found.model,
        vocab_size=found.vocab_size,
        positions=64,
        dtype=torch.float32,
        source=lambda names: {name: held[name] for name in names},
        shard_bytes=20_000,
    )
    assert read_config(out) == found
    again, _ = own_model(out, torch.float32)
    assert {name: p.shape for name, p in again.named_parameters()} == {n: p.shape for n, p in held.items()}
    assert all(torch.equal(p, held[name]) for name, p in again.named_parameters())
    read_back = load_foreign(out)
    before, after = theirs.state_dict(), read_back.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(read_back(tokens()).logits, expected)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@torch.no_grad()
def test_float64_logits_are_the_same_mathematics(kind: str, tmp_path: Path) -> None:
    """transformers computes norms and angles in float32 whatever the model's format: here it is made to use float64,
    and what is left is the order of additions."""
    theirs = foreign_model(kind, torch.float64)
    theirs.save_pretrained(tmp_path)
    ours, found = own_model(tmp_path, torch.float64)
    _widen(theirs, theta=found.model.rope_theta, size=found.model.size_of_head)
    difference = (ours(tokens()) - theirs(tokens()).logits).abs().max()
    assert difference < 1e-12, float(difference)


@pytest.mark.parametrize("kind", ["mixtral", "qwen2-moe", "qwen3-moe"])
@torch.no_grad()
def test_experts_in_float64(kind: str, tmp_path: Path) -> None:
    """Its router rounds to float32: no closer than that."""
    theirs = foreign_model(kind, torch.float64)
    theirs.save_pretrained(tmp_path)
    ours, _ = own_model(tmp_path, torch.float64)
    assert (ours(tokens()) - theirs(tokens()).logits).abs().max() < TOLERANCE


def _widen(model: Any, *, theta: float, size: int) -> None:
    def norm(module: Any, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + module.variance_epsilon)
        scaled: torch.Tensor = module.weight * (x * scale)
        return scaled

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm.__get__(module)
    angles = torch.outer(
        torch.arange(POSITIONS, dtype=torch.float64),
        theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size),
    )
    doubled = torch.cat((angles, angles), dim=-1)[None]
    model.model.rotary_emb.forward = lambda x, position_ids: (doubled.cos(), doubled.sin())
