"""Gangs that stop getting on without anybody dying: found by progress, named, kept, and repaired.

Faults are real: a stopped process, a loop in a user's module, a file that never gives data. Bounds are tight here, so
that a test takes seconds; the default is tested where the bounds are made (`tests/orchestrator/health/test_pace.py`).
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lifecycle.reports import EventKind, GangEvent, Outcome
from orchestrator.lifecycle.states import Reason
from orchestrator.topology.fabric import Slot

pytestmark = pytest.mark.timeout(600)

HANG_AFTER_S = 2.0
STEPS = 12
SEED = 2026


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    directory = tmp_path / "marks"
    directory.mkdir()
    return directory


def job(options: dict[str, Any], *, ranks: int = 2, steps: int = STEPS, **recovery: Any) -> dict[str, Any]:
    """A job whose ranks are replicas of `hanging_model`, which hangs in the seventh forward of an attempt."""
    return {
        "name": "hangs",
        "model": {"import": "hanging_model:build", "options": {"after": 7, **options}},
        "parallelism": {"dp": ranks},
        "training": {"steps": steps, "global_batch": 4, "sequence_length": 16, "eval_sequences": 2},
        "checkpoint": {"every": 2},
        "recovery": {"hang_after_s": HANG_AFTER_S, "hang_factor": 10, "step_timeout_s": 600.0, **recovery},
    }


def hang_of(driver: Any) -> GangEvent:
    """The one hang of a job that was repaired and then succeeded."""
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert driver.kinds().count(EventKind.HUNG) == 1, [event.message for event in driver.events]
    assert EventKind.RANK_DIED not in driver.kinds()
    found: GangEvent = driver.event(EventKind.HUNG)
    order = [
        driver.kinds().index(kind) for kind in (EventKind.HUNG, EventKind.REPAIR_STARTED, EventKind.REPAIRED)
    ]
    assert order == sorted(order)
    assert (report.attempt, report.restarts_used) == (2, 1)
    assert driver.steps[-1].step == STEPS
    return found


@pytest.mark.parametrize(
    ("how", "function"),
    [
        ("loop", "_loop"),
        pytest.param("read", "_read", marks=pytest.mark.slow),
        pytest.param("wait", "_wait", marks=pytest.mark.slow),
    ],
)
def test_row_36_one_rank_does_not_come_back_from_user_code(
    driver: Any, leaf_slots: tuple[Slot, ...], marks: Path, tmp_path: Path, how: str, function: str
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    driver.start(leaf_slots[:2], job({"how": how, "ranks": [1], "marks": str(marks), "fifo": str(fifo)}))
    hung = hang_of(driver)
    assert hung.data["missing"] == [1]
    assert (hung.data["rank"], hung.data["node"]) == (1, leaf_slots[1].node)
    finished = max(record.step for record in driver.steps if record.attempt == 1)
    assert f"after step {finished}:" in hung.message
    assert (
        f"in {function} (hanging_model.py" in hung.message or how == "read"
    )  # which is found in the library that opens it
    waits = {rank["rank"]: rank.get("waits_in") for rank in hung.data["ranks"]}
    assert waits[1] is None
    assert waits[0]["ranks"] == [0, 1]
    assert function in hung.data["traceback"]
    stacks = {rank: entry["stack"] for entry in hung.data["stacks"] for rank in entry["ranks"]}
    assert stacks.keys() == {0, 1}
    log = driver.directory / "logs" / "attempt-0001" / "rank-00001.log"
    assert function in log.read_text()
    driver.assert_nothing_left()


@pytest.mark.slow
def test_a_stopped_rank_is_named(driver: Any, leaf_slots: tuple[Slot, ...], marks: Path) -> None:
    driver.start(leaf_slots, job({"ranks": [], "marks": str(marks)}, ranks=4, steps=3000))
    report = driver.until(lambda report: report.ranks and report.step >= 5, "five steps")
    os.kill(report.ranks[2].pid, signal.SIGSTOP)
    driver.until(lambda report: report.attempt == 2 and report.ranks, "the second attempt")
    hung = driver.event(EventKind.HUNG)
    assert hung.data["missing"] == [2]
    assert f"rank 2 on {leaf_slots[2].node} is stopped by a signal" in hung.message
    assert {rank["rank"]: rank["state"] for rank in hung.data["ranks"]}[2] == "T"
    driver.launcher.cancel(driver.ref, fencing_token=driver.token)
    driver.end()
    driver.assert_nothing_left()


@pytest.mark.slow
def test_all_ranks_loop(driver: Any, leaf_slots: tuple[Slot, ...], marks: Path) -> None:
    driver.start(leaf_slots, job({"how": "loop", "ranks": [None], "marks": str(marks)}, ranks=4))
    hung = hang_of(driver)
    assert hung.data["missing"] == []
    assert "none waits for another" in hung.message
    assert "rank 0 in _loop (hanging_model.py" in hung.message
    driver.assert_nothing_left()


@pytest.mark.slow
def test_a_program_that_hangs_at_the_same_step_again_and_again_is_the_users(
    driver: Any, leaf_slots: tuple[Slot, ...], marks: Path
) -> None:
    # Without checkpoints each attempt begins with step 1 and hangs in the same one.
    spec = job({"how": "loop", "ranks": [0, 0, 0], "marks": str(marks)}, max_restarts_at_step=2)
    driver.start(leaf_slots[:2], {**spec, "checkpoint": {"every": 0}})
    report = driver.end()
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.USER_ERROR.value)
    assert driver.kinds().count(EventKind.HUNG) == 2
    assert "_loop" in report.message


@pytest.mark.slow
def test_twenty_hangs_are_named_twenty_times(driver: Any, leaf_slots: tuple[Slot, ...], marks: Path) -> None:
    dice = random.Random(SEED)
    ranks = [dice.randrange(4) for _ in range(20)]
    options = {"how": "loop", "ranks": ranks, "marks": str(marks)}
    driver.start(leaf_slots, job(options, ranks=4, steps=200, max_restarts=20))
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    hangs = [event for event in driver.events if event.kind is EventKind.HUNG]
    assert [event.data["missing"] for event in hangs] == [[rank] for rank in ranks]
    for event in hangs:
        assert "is missing in the all-reduce of axis dp (ranks 0, 1, 2, 3)" in event.message
        # Stalled when told, plus what the supervisor took to hear of it: within the limit of the tight setting.
        assert HANG_AFTER_S <= event.data["still_s"] < 5.0, event.message
