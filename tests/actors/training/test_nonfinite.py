"""NaN, infinity, failed allocations and a data file that vanishes: the job ends or goes on as declared, says who, when
and why, and the last good checkpoint stays as it is."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gang import FakeReporter, RankFailedError
from plans import changed, demo_job, train_job

from actors.training.engine import Engine
from actors.training.loss import TokenLoss
from orchestrator.spec import JobSpec

SMALL: dict[str, Any] = {"steps": 8, "global_batch": 4, "sequence_length": 32, "eval_sequences": 4}
Trouble = Callable[[torch.Tensor], torch.Tensor]


def job(
    *, every: int = 0, asynchronous: bool = True, plan: dict[str, Any] | None = None, **training: Any
) -> JobSpec:
    spec = demo_job(parallelism=plan or {"dp": 2, "microbatches": 2}, **SMALL | training)
    return changed(spec, checkpoint={"every": every, "asynchronous": asynchronous})


def trouble_at(monkeypatch: pytest.MonkeyPatch, *, step: int, rank: int, trouble: Trouble) -> None:
    """Lets `trouble` loose on the loss of step `step` (1-based) on rank `rank` of the jobs to come."""
    now: dict[str, int] = {}
    whole_step, loss = Engine.train_step, TokenLoss.__call__

    def train_step(self: Engine, index: int, *, stop: bool) -> Any:
        now["step"] = index + 1
        return whole_step(self, index, stop=stop)

    def troubled(self: TokenLoss, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        value = loss(self, logits, targets)
        return trouble(value) if (now.get("step"), dist.get_rank()) == (step, rank) else value

    monkeypatch.setattr(Engine, "train_step", train_step)
    monkeypatch.setattr(TokenLoss, "__call__", troubled)


def not_a_number(loss: torch.Tensor) -> torch.Tensor:
    return loss * math.nan


def infinite(loss: torch.Tensor) -> torch.Tensor:
    return loss * math.inf


def finite_losses(reporter: FakeReporter) -> dict[int, float]:
    """Newest loss of each step that changed the weights."""
    return {s["step"]: s["loss"] for s in reporter.steps if not s.get("skipped")}


def content(checkpoints: Path) -> dict[str, str]:
    """Of every file but the fence, which each attempt sets anew."""
    files = sorted(p for p in checkpoints.rglob("*") if p.is_file() and not p.name.startswith(".fence-"))
    return {
        str(path.relative_to(checkpoints)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


@pytest.mark.parametrize("trouble", [not_a_number, pytest.param(infinite, marks=pytest.mark.slow)])
def test_stop_names_step_rank_and_batch(
    trouble: Trouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble_at(monkeypatch, step=5, rank=1, trouble=trouble)
    # Step 5 reads the sequences 16 to 19; replica 1 the second half of them.
    told = (
        r"NonFiniteError: step 5: loss (nan|inf), gradient norm nan, not finite on rank 1 in sequences 18 to 19; "
        r"gradients of embedding\.weight, .*lower training\.optimizer\.learning_rate"
    )
    with pytest.raises(RankFailedError, match=told):
        train_job(job(every=2), tmp_path)
    before = content(tmp_path / "checkpoints")
    assert "step-00000004/manifest.json" in before
    with pytest.raises(RankFailedError, match="step 5"):
        train_job(job(every=2), tmp_path, attempt=2)
    assert content(tmp_path / "checkpoints") == before
    monkeypatch.undo()
    assert train_job(job(every=2), tmp_path, attempt=3)[0].of("resumed")[0]["step"] == 4


@pytest.mark.slow
def test_rewind_and_skip_leave_the_same_batch_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean = finite_losses(train_job(job(), tmp_path / "clean")[0])
    trouble_at(monkeypatch, step=5, rank=1, trouble=not_a_number)
    skipped = train_job(job(on_nonfinite="skip"), tmp_path / "skip")[0]
    rewound = train_job(job(on_nonfinite="rewind", every=3), tmp_path / "rewind")[0]
    from_start = train_job(job(on_nonfinite="rewind"), tmp_path / "start")[0]
    losses = finite_losses(skipped)
    assert sorted(losses) == [1, 2, 3, 4, 6, 7, 8]
    assert [losses[step] for step in range(1, 5)] == [clean[step] for step in range(1, 5)]
    assert losses[6] != clean[6]
    assert finite_losses(rewound) == finite_losses(from_start) == losses
    assert [s["step"] for s in rewound.steps] == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]
    told = {
        "step": 5,
        "ranks": [1],
        "replicas": [1],
        "sequences": [[18, 19]],
        "budget_left": 9,
    }
    assert {key: skipped.of("update-skipped")[0][key] for key in told} == told
    assert {key: rewound.of("rewound")[0][key] for key in told} == told
    assert rewound.of("rewound")[0]["to_step"] == 3
    assert from_start.of("rewound")[0]["to_step"] == 0
    assert len(skipped.of("update-skipped")) == len(rewound.of("rewound")) == 1


def test_a_restart_leaves_the_same_steps_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = job(on_nonfinite="rewind", every=3)
    trouble_at(monkeypatch, step=5, rank=0, trouble=not_a_number)
    whole = finite_losses(train_job(spec, tmp_path / "whole")[0])
    # Asked once a step that is computed: 1 to 5, back to 3, and in step 4 it stops.
    first = train_job(spec, tmp_path / "cut", stop_after=6)[0]
    assert [s["step"] for s in first.steps] == [1, 2, 3, 4, 5, 4]
    monkeypatch.undo()  # the trouble is gone, what was decided stays
    resumed = train_job(spec, tmp_path / "cut", attempt=2)[0]
    assert resumed.of("resumed")[0]["step"] == 4
    assert [s["step"] for s in resumed.steps] == [5, 6, 7, 8]
    assert resumed.steps[0]["skipped"] is True
    assert finite_losses(resumed) == {step: whole[step] for step in (6, 7, 8)}


@pytest.mark.parametrize("policy", ["skip", "rewind"])
def test_the_budget_ends_it(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble_at(monkeypatch, step=2, rank=0, trouble=not_a_number)
    spec = job(on_nonfinite=policy, nonfinite_budget=0)
    with pytest.raises(RankFailedError, match=r"step 2: .*; training\.nonfinite_budget \(0\) is used up"):
        train_job(spec, tmp_path)


def too_large(loss: torch.Tensor) -> torch.Tensor:
    return loss + torch.empty(1 << 60, dtype=torch.uint8).sum()


def like_an_accelerator(loss: torch.Tensor) -> torch.Tensor:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize(
    ("trouble", "plan", "said"),
    [
        pytest.param(
            too_large, {"dp": 2, "microbatches": 2}, "can't allocate memory", id="a-real-allocation"
        ),
        pytest.param(
            like_an_accelerator,
            {"pp": 2, "microbatches": 2},
            "CUDA out of memory",
            id="inside-a-pipeline",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_out_of_memory_names_rank_and_step(
    trouble: Trouble, plan: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble_at(monkeypatch, step=5, rank=1, trouble=trouble)
    spec = job(every=2, asynchronous=False, plan=plan)
    with pytest.raises(
        RankFailedError, match=rf"RankOutOfMemoryError: rank 1: out of memory in step 5: .*{said}.*recompute"
    ):
        train_job(spec, tmp_path)
    monkeypatch.undo()
    resumed = train_job(spec, tmp_path, attempt=2)[0]
    assert resumed.of("checkpoint-skipped") == []
    assert resumed.of("resumed")[0]["step"] == 4
    assert [s["step"] for s in resumed.steps] == [5, 6, 7, 8]


def test_a_data_file_deleted_in_mid_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attempt goes on, the next one ends and names the file; with the file back the job resumes."""
    text = tmp_path / "text.txt"
    words = "".join(f"{n} is a number and {n * n} is its square. " for n in range(400))
    text.write_text(words)

    def delete(loss: torch.Tensor) -> torch.Tensor:
        text.unlink(missing_ok=True)  # asked for every micro-batch
        return loss

    trouble_at(monkeypatch, step=3, rank=0, trouble=delete)
    spec = changed(job(every=2), data={"source": str(text)})
    assert [s["step"] for s in train_job(spec, tmp_path / "job", stop_after=5)[0].steps] == [1, 2, 3, 4, 5]
    before = content(tmp_path / "job" / "checkpoints")
    monkeypatch.undo()
    with pytest.raises(RankFailedError, match=r"data\.source.*text\.txt"):
        train_job(spec, tmp_path / "job", attempt=2)
    assert content(tmp_path / "job" / "checkpoints") == before
    text.write_text(words)
    assert train_job(spec, tmp_path / "job", attempt=3)[0].of("resumed")[0]["step"] == 5
