"""`verify` says equal for what is equal, and where it differs for what is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from matrix import EXPERTS, job
from plans import changed

from actors.training.engine import Engine, StepResult
from actors.training.local_gang import RankFailedError
from actors.training.parallel.data_parallel import GradientReducer
from actors.training.verify import Verdict, verify


def verdict(line: str, directory: Path, *, precision: str = "fp64", steps: int = 2) -> Verdict:
    spec = job(line, precision=precision, directory=str(directory))
    return verify(spec, steps=steps, directory=directory, deadline_s=240.0)


def test_an_equal_plan(tmp_path: Path) -> None:
    found = verdict("ep2 tp2 shard2 zero2", tmp_path)
    assert found.first is None
    assert len(found.steps) == 2
    assert found.loss.value < 1e-12
    assert found.gradient_norm.value < 1e-12
    assert found.weights.value < 1e-12
    assert "layers.3.feed_forward.experts.gate" in found.steps[-1].weights


def test_gradients_that_are_not_added_up_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GradientReducer, "_launch", _nothing)
    monkeypatch.setattr(GradientReducer, "finish", lambda self: None)
    found = verdict("replicate2", tmp_path)
    # The first step's loss is computed before any gradient; its norm is wrong at once.
    assert found.steps[0].loss < 1e-12
    assert found.first is not None
    assert found.first[0] == 1
    assert found.gradient_norm.value > 1e-3


def test_what_is_no_number_is_a_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one weight and of the norm, under the plan alone; all else, named before and after it, is equal."""
    step = Engine.train_step

    def broken(engine: Engine, number: int, *, stop: bool) -> StepResult:
        result = step(engine, number, stop=stop)
        if engine.spec.parallelism.dp == 1:
            return result
        with torch.no_grad():
            dict(engine.named)["layers.1.attention_norm.weight"][0] = torch.nan
        return replace(result, grad_norm=torch.nan)

    monkeypatch.setattr(Engine, "train_step", broken)
    found = verdict("replicate2", tmp_path, steps=1)
    assert found.steps[0].loss < 1e-12
    assert found.weights.where == "layers.1.attention_norm.weight"
    assert found.gradient_norm.value == torch.inf
    assert found.first is not None


def _nothing(*_: Any) -> None:
    """In place of a collective."""


def test_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    spec = job("replicate2", precision="fp64", directory=str(tmp_path))
    data = spec.data.model_copy(update={"source": str(tmp_path / "nowhere.txt")})
    with pytest.raises(RankFailedError, match=r"nowhere\.txt"):
        verify(spec.model_copy(update={"data": data}), steps=1, directory=tmp_path, deadline_s=240.0)


def test_fewer_experts_than_ranks_resharded_over_neighbours(tmp_path: Path) -> None:
    """torch cannot gather from neighbours what is cut inside an expert, as few experts otherwise are."""
    spec = changed(
        job("ep1 shard2 zero3", precision="fp64", directory=str(tmp_path)),
        model={"layers": 2, "moe": EXPERTS | {"experts": 2}},
        parallelism={"dp": 4, "dp_shard": None, "reshard_after_forward": 2},
    )
    found = verify(spec, steps=2, directory=tmp_path, deadline_s=240.0)
    assert found.first is None
    assert max(found.loss.value, found.gradient_norm.value, found.weights.value) < 1e-12
