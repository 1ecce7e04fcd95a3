"""`verify` says equal for what is equal, and where it differs for what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matrix import job

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


def _nothing(*_: Any) -> None:
    """In place of a collective."""


def test_a_rank_that_fails_is_named(tmp_path: Path) -> None:
    spec = job("replicate2", precision="fp64", directory=str(tmp_path))
    data = spec.data.model_copy(update={"source": str(tmp_path / "nowhere.txt")})
    with pytest.raises(RankFailedError, match=r"nowhere\.txt"):
        verify(spec.model_copy(update={"data": data}), steps=1, directory=tmp_path, deadline_s=240.0)
