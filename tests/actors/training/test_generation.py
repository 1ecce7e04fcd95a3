"""Sampling at the edges of what may be asked, and reading what is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from actors.training.generation import sample
from actors.training.model.decoder import Decoder
from actors.training.trained import NoGoodCheckpointError, TrainedWeights
from orchestrator.spec import parse_spec
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


def test_a_checkpoint_that_its_running_job_deleted_is_named(tmp_path: Path) -> None:
    spec = parse_spec({"name": "small", "training": {"steps": 1}})
    with pytest.raises(
        NoGoodCheckpointError, match=r"step-00000050: deleted for newer ones .*run the command again"
    ):
        TrainedWeights(spec, tmp_path / "step-00000050").read(["head.weight"])
