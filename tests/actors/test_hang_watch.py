"""When a watch asks, and that it condemns only what stands still twice and does not move while it is asked."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from actors import hang_watch
from actors.hang_watch import HangWatch
from orchestrator.health.hang import Hang
from orchestrator.health.pace import Pace
from orchestrator.health.standing import CHECKPOINT, STEP, Standing
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.sections import RecoverySpec

TIMES = Timeouts.of(RecoverySpec())


class FakeGang:
    """Ranks whose standings a test sets."""

    def __init__(self) -> None:
        self.found = {rank: Standing(rank, "n0", 20, 50, 31.0, STEP) for rank in (0, 1)}
        self.after_stacks: dict[int, Standing] | None = None

    async def standings(self, attempt: int) -> dict[int, Standing]:
        return dict(self.found)

    async def stacks(self, attempt: int) -> dict[int, str]:
        self.found = self.after_stacks or self.found
        return {0: "a stack"}


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hang_watch, "time", clock)
    return clock


def watched(gang: FakeGang) -> HangWatch:
    pace = Pace(TIMES)
    for step in range(1, 21):
        pace.took(step, 0.1)
    watch: Any = HangWatch(gang, 1, pace, TIMES)  # type: ignore[arg-type]
    return watch


def look(watch: HangWatch) -> Hang | None:
    return asyncio.run(watch.look({0, 1}))


def test_row_36_a_gang_that_stands_still_is_condemned_at_the_second_look(clock: Clock) -> None:
    gang = FakeGang()
    watch = watched(gang)
    assert watch.look_at == clock.now + 30.0
    clock.now = watch.look_at
    assert look(watch) is None
    assert watch.look_at == clock.now + 5.0
    hang = look(watch)
    assert hang is not None
    assert hang.data["limit_s"] == 30.0
    assert hang.data["stacks"] == [{"ranks": [0], "stack": "a stack"}]


def test_row_86_a_gang_whose_processes_all_run_is_condemned_all_the_same(clock: Clock) -> None:
    """Every agent answers and no process is stopped or blocked: what counts is that no step ends."""
    gang = FakeGang()
    gang.found = {rank: replace(standing, state="R") for rank, standing in gang.found.items()}
    watch = watched(gang)
    assert look(watch) is None
    hang = look(watch)
    assert hang is not None
    assert {one["state"] for one in hang.data["ranks"]} == {"R"}


def test_one_rank_that_moved_between_the_looks_saves_the_gang(clock: Clock) -> None:
    """As after a machine that was frozen: every rank seems still, until it gets on."""
    gang = FakeGang()
    watch = watched(gang)
    assert look(watch) is None
    gang.found[1] = replace(gang.found[1], moves=51)
    assert look(watch) is None
    assert look(watch) is not None


def test_one_rank_that_moved_while_stacks_were_collected_saves_the_gang(clock: Clock) -> None:
    gang = FakeGang()
    gang.after_stacks = {**gang.found, 1: replace(gang.found[1], moves=51)}
    watch = watched(gang)
    assert look(watch) is None
    assert look(watch) is None


def test_what_a_rank_has_just_done_is_waited_for_from_there(clock: Clock) -> None:
    gang = FakeGang()
    gang.found[1] = replace(gang.found[1], still_s=10.0)
    watch = watched(gang)
    assert look(watch) is None
    assert watch.look_at == clock.now + 20.0


def test_a_checkpoint_is_waited_for_but_looked_at_again(clock: Clock) -> None:
    gang = FakeGang()
    gang.found[0] = replace(gang.found[0], phase=CHECKPOINT, still_s=900.0)
    watch = watched(gang)
    for _ in range(3):
        assert look(watch) is None
        assert watch.look_at == clock.now + 30.0


def test_an_agent_that_gives_no_answer_delays_the_verdict(clock: Clock) -> None:
    gang = FakeGang()
    missing = gang.found.pop(1)
    watch = watched(gang)
    assert look(watch) is None
    assert look(watch) is None
    gang.found[1] = missing
    assert look(watch) is None
    assert look(watch) is not None


def test_a_program_that_tells_no_phase_has_the_whole_silence(clock: Clock) -> None:
    gang = FakeGang()
    gang.found = {rank: Standing(rank, "n0") for rank in (0, 1)}
    watch = watched(gang)
    clock.now += TIMES.silence_s - 1.0
    assert look(watch) is None
    clock.now += 2.0
    assert look(watch) is None
    assert look(watch) is not None


def test_agents_that_never_say_what_their_ranks_do_are_not_asked_for_ever(clock: Clock) -> None:
    gang = FakeGang()
    del gang.found[1]
    watch = watched(gang)
    clock.now += TIMES.silence_s - 1.0
    assert look(watch) is None
    clock.now += 1.0
    hang = look(watch)
    assert hang is not None
    assert hang.missing == (1,)
    assert hang.summary.endswith("nobody could be asked what rank 1 did")
