"""Each invariant speaks up when it is broken, and none does about a run that is right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.checkpoint import manifest
from actors.checkpoint.disk import hash_file
from actors.checkpoint.layout import MANIFEST_NAME
from atoll.answers import Goodput
from orchestrator.store.tables import Attempt, Event, Job, Metric, Placement
from tests.chaos import weights
from tests.chaos.invariants import Undisturbed, losses, violations
from tests.chaos.run import Observed
from tests.chaos.scenario import STEPS, Scenario
from tests.chaos.witness import Pass, Witness

BEGAN = datetime(2026, 12, 1, tzinfo=UTC)
NOBODY = 2**22 + 1
"""No process has such an id: it is above the kernel's limit."""
KINDS = (
    "submitted",
    "placed",
    "attempt-started",
    "attempt-ended",
    "attempt-started",
    "attempt-ended",
    "finished",
)


def checkpoint(folder: Path, step: int) -> None:
    directory = folder / f"step-{step:08d}"
    directory.mkdir(parents=True)
    (directory / "shard").write_bytes(b"weights")
    size, digest = hash_file(directory / "shard")
    files = {"shard": manifest.FileRecord(size, digest)}
    described = manifest.Manifest(step, "1-1", 2, {}, {}, 0.0, "2", files)
    (directory / MANIFEST_NAME).write_bytes(manifest.build(described))


@pytest.fixture
def right(tmp_path: Path) -> Observed:
    """Twenty steps, a death, and the rest; 2 slots for 10 s."""
    checkpoint(tmp_path / "checkpoints", STEPS)
    witness = Witness(tmp_path / "witness")
    witness.passes = [Pass(1000.0 + n, NOBODY + n // 20, 0, 0, 7000 + n // 20) for n in range(STEPS)]
    numbers = {2: 1, 3: 1, 4: 2, 5: 2}
    events = [
        Event(job_id="j", id=n + 1, at=BEGAN, kind=kind, attempt=numbers.get(n), message="", data={},
              incarnation=1 if n in numbers else None, seq=n - 1 if n in numbers else None)
        for n, kind in enumerate(KINDS)
    ]  # fmt: skip
    events[-1].data = {"outcome": "succeeded"}
    metrics = [
        Metric(job_id="j", id=n, at=BEGAN, incarnation=1, seq=n, attempt=1 + n // 21, step=n, loss=1.0 / n)
        for n in range(1, STEPS + 1)
    ]
    placement = Placement(
        incarnation=1,
        slots=[["a", 0], ["b", 0]],
        revision=0,
        placed_at=BEGAN,
        released_at=BEGAN + timedelta(seconds=10),
    )
    attempts = [
        Attempt(number=number, ended_at=BEGAN, outcome=outcome)
        for number, outcome in ((1, "rank-died"), (2, "succeeded"))
    ]
    job = Job(id="j", state="succeeded", reason="completed", step=STEPS, message="")
    job.spec = {"parallelism": {"microbatches": 1}}
    goodput = Goodput(
        gpu_seconds={"useful-compute": 15.0, "lost-work": 5.0, "bubble": None},
        unmeasured_gpu_seconds={}, held_gpu_seconds=20.0, total_gpu_seconds=20.0, goodput=0.75, ettr=0.75,
        gpus=2, until=BEGAN, repairs=[],
    )  # fmt: skip
    return Observed(
        Scenario(0, "replicas", ()), 10.0, True, [], job, events, metrics, [placement], attempts, 0, goodput,
        witness, tmp_path / "checkpoints", [], {}, [],
    )  # fmt: skip


def test_nothing_is_said_of_a_run_that_is_right(right: Observed) -> None:
    assert violations(right, None) == []


def _wait(seen: Observed) -> None:
    seen.ended = False


def _fail(seen: Observed) -> None:
    seen.job.state = "failed"


def _train_less(seen: Observed) -> None:
    seen.witness.passes.pop()


def _lose_an_event(seen: Observed) -> None:
    seen.events[3].seq = 9


def _swap_events(seen: Observed) -> None:
    seen.events[2].seq, seen.events[3].seq = seen.events[3].seq, seen.events[2].seq


def _place_again(seen: Observed) -> None:
    seen.events[1].kind = "queued"


def _leave_open(seen: Observed) -> None:
    seen.attempts[0].ended_at = None


def _train_twice(seen: Observed) -> None:
    seen.witness.passes.append(Pass(1025.0, NOBODY, 0, 0, 7000))


def _live_on(seen: Observed) -> None:
    seen.left = {1: "ray::NodeAgent"}


def _hold(seen: Observed) -> None:
    seen.unfree = ["Ray counts 0 of 1 slot of l0n0 as free"]


def _half_write(seen: Observed) -> None:
    (seen.checkpoints / ".attempt-1-1-step-10").mkdir()


def _tear(seen: Observed) -> None:
    (seen.checkpoints / f"step-{STEPS:08d}" / "shard").write_bytes(b"weight!")


def _spend(seen: Observed) -> None:
    seen.goodput = seen.goodput.model_copy(update={"total_gpu_seconds": 21.0})


def _hold_longer(seen: Observed) -> None:
    seen.placements[0].released_at = BEGAN + timedelta(seconds=11)


@pytest.mark.parametrize(
    ("spoil", "invariant"),
    [
        (_wait, "terminal"),
        (_fail, "status"),
        (_train_less, "status"),
        (_lose_an_event, "history"),
        (_swap_events, "history"),
        (_place_again, "story"),
        (_leave_open, "attempts_closed"),
        (_train_twice, "no_double_run"),
        (_live_on, "no_orphan"),
        (_hold, "no_slot_leaked"),
        (_half_write, "checkpoints"),
        (_tear, "checkpoints"),
        (_spend, "ledger"),
        (_hold_longer, "ledger"),
    ],
)
def test_what_is_wrong_is_named(right: Observed, spoil: Callable[[Observed], None], invariant: str) -> None:
    spoil(right)
    assert invariant in {one.partition(":")[0] for one in violations(right, None)}


def test_a_loss_that_differs_in_the_last_bit(right: Observed) -> None:
    same = {row.step: row.loss for row in right.metrics}
    assert list(losses(right, Undisturbed(same, {}))) == []
    other = same | {3: 1.0 / 3 + 2**-54}
    assert len(list(losses(right, Undisturbed(other, {})))) == 1


def test_weights_to_the_bit_and_to_one_in_a_thousand_million() -> None:
    one: dict[str, Any] = {"w": torch.tensor([1.0, 2.0], dtype=torch.float64), "step": 3}
    near = {**one, "w": one["w"] + 1e-10}
    far = {**one, "w": one["w"] + 1e-8}
    assert weights.differing(one, dict(one), exact=True) == []
    assert weights.differing(one, near, exact=True) == ["w"]
    assert weights.differing(one, near, exact=False) == []
    assert weights.differing(one, far, exact=False) == ["w"]
    assert weights.differing(one, {**one, "step": 4}, exact=False) == ["step"]
    assert weights.differing(one, {"w": one["w"]}, exact=False) == ["step"]
