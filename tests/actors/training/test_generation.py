"""Sampling at the edges of what may be asked."""

from __future__ import annotations

import pytest
import torch

from actors.training.generation import sample
from actors.training.model.decoder import Decoder
from orchestrator.spec.sections import ModelSpec


@pytest.fixture
def decoder() -> Decoder:
    torch.manual_seed(1)
    model = ModelSpec(layers=1, hidden=8, heads=1, kv_heads=1, ffn_hidden=8)
    made = Decoder(model, vocab_size=256, positions=8)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30])
def test_the_smallest_temperatures_take_the_likeliest_token(decoder: Decoder, temperature: float) -> None:
    """A logit divided by them is no number any more."""

    def ids(temperature: float) -> list[int]:
        made = sample(decoder, [1], tokens=12, temperature=temperature, seed=0, device=torch.device("cpu"))
        return list(made)

    assert ids(temperature) == ids(0.0)
