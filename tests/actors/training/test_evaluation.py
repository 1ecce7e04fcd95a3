"""What the loop reports beside steps: held-back loss and perplexity, the best checkpoint, loads of experts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from plans import changed, demo_job, train_job

from actors.training import expert_report
from actors.training.engine import Engine, Evaluation
from actors.training.expert_report import _spread
from actors.training.parallel.balance import ExpertLoad
from orchestrator.spec import JobSpec

SMALL: dict[str, Any] = {"steps": 8, "global_batch": 4, "sequence_length": 32, "eval_sequences": 4}


def job(*, plan: dict[str, Any] | None = None, **checkpoint: Any) -> JobSpec:
    spec = demo_job(parallelism=plan, **SMALL | {"eval_every": 2})
    return changed(spec, checkpoint={"keep": 1, "keep_best": True} | checkpoint)


def held_back(monkeypatch: pytest.MonkeyPatch, losses: dict[int, float]) -> None:
    """Makes the evaluation after step s of the jobs to come give `losses[s]`."""
    now: dict[str, int] = {}
    whole_step = Engine.train_step

    def train_step(self: Engine, index: int, *, stop: bool) -> Any:
        now["step"] = index + 1
        return whole_step(self, index, stop=stop)

    monkeypatch.setattr(Engine, "train_step", train_step)
    monkeypatch.setattr(Engine, "evaluate", lambda self: Evaluation(losses[now["step"]], 3.0))


def kept(directory: Path) -> tuple[list[int], int]:
    """Steps of the checkpoints, and the best one's."""
    checkpoints = directory / "checkpoints"
    best = json.loads((checkpoints / "best.json").read_text())
    assert (checkpoints / best["checkpoint"] / "manifest.json").is_file()
    steps = sorted(int(path.name.removeprefix("step-")) for path in checkpoints.glob("step-*"))
    return steps, best["step"]


def test_perplexity_is_told_with_the_loss(tmp_path: Path) -> None:
    reporter = train_job(demo_job(**SMALL | {"eval_every": 4}), tmp_path)[0]
    told = reporter.of("evaluated")
    assert [e["step"] for e in told] == [4, 8]
    for one in told:
        assert one["perplexity"] == pytest.approx(math.exp(one["loss"]))
        assert "best" not in one
    assert Evaluation(loss=1000.0, unigram_loss=1.0).perplexity is None
    assert not (tmp_path / "checkpoints" / "best.json").exists()


@pytest.mark.parametrize("plan", [pytest.param({}, marks=pytest.mark.slow), {"pp": 2, "microbatches": 2}])
def test_the_best_checkpoint_stays_beside_the_newest(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_back(monkeypatch, {2: 3.0, 4: 2.0, 6: 2.5, 8: math.nan})
    reporter = train_job(job(plan=plan, every=1), tmp_path)[0]
    assert kept(tmp_path) == ([4, 8], 4)
    assert [e["step"] for e in reporter.of("evaluated") if e.get("best")] == [2, 4]
    pruned = [step for c in reporter.of("checkpoint-committed") for step in c.get("pruned", [])]
    assert sorted(pruned) == [1, 2, 3, 5, 6, 7]


@pytest.mark.slow
def test_the_best_is_saved_when_no_checkpoint_is_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held_back(monkeypatch, {2: 3.0, 4: 2.0, 6: 2.5, 8: 2.1})
    train_job(job(), tmp_path)
    assert kept(tmp_path) == ([4, 8], 4)


@pytest.mark.slow
def test_the_best_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose evaluation the attempt before did not come to."""
    losses = {2: 2.0, 4: 1.5, 6: 2.5, 8: 2.1}
    held_back(monkeypatch, losses)
    train_job(job(every=1), tmp_path, stop_after=4)  # saves step 4, stops before its evaluation
    assert kept(tmp_path) == ([2, 4], 2)
    monkeypatch.setattr(Engine, "evaluate", lambda self: Evaluation(1.5, 3.0))
    train_job(job(every=1), tmp_path, attempt=2, stop_after=1)
    assert kept(tmp_path) == ([4, 5], 4)
    monkeypatch.undo()
    held_back(monkeypatch, losses)
    reporter = train_job(job(every=1), tmp_path, attempt=3)[0]
    assert kept(tmp_path) == ([4, 8], 4)
    assert [e["step"] for e in reporter.of("evaluated") if e.get("best")] == []


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"pp": 2, "microbatches": 2}, marks=pytest.mark.slow),
        {"dp": 2, "ep": 2, "microbatches": 2},
    ],
)
def test_loads_of_all_layers_are_reported_in_a_few_steps(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expert_report, "REPORTS", 2)
    spec = changed(
        demo_job(parallelism=plan, **SMALL), model={"moe": {"experts": 4, "top_k": 2, "capacity_factor": 1.0}}
    )
    loads = train_job(spec, tmp_path)[0].of("expert-load")
    assert [one["step"] for one in loads] == [4, 8]
    for one in loads:
        assert [layer["layer"] for layer in one["layers"]] == list(range(spec.model.layers))
        assert one["layers_with_experts"] == spec.model.layers
        for layer in one["layers"]:
            assert sum(layer["assigned"]) == 4 * 32 * 2  # sequences x positions x experts of a token
            assert all(0 <= d <= a for d, a in zip(layer["dropped"], layer["assigned"], strict=True))


def test_a_long_list_of_layers_is_thinned_evenly() -> None:
    loads = [ExpertLoad(layer, (1,), (0,)) for layer in range(10)]
    assert [load.layer for load in _spread(loads, 3)] == [0, 3, 6]
    assert _spread(loads, 64) == loads
