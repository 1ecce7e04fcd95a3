"""Stretches hold the sums of their steps, and the order of records tells what was lost."""

from __future__ import annotations

from orchestrator.goodput.stretch import STEPS, Stretch, lost_from, one_step, stretches


def step(number: int, of: int, attempt: int = 1) -> Stretch:
    cost = {
        "phases_s": {"data": 0.25, "checkpoint": 0.5},
        "exposed_s": {"tp": 1.0, "control": 2.0, "pp": 3.0},
    }
    return one_step(number, attempt, of, of * 10_000_000, 10.0, cost)


def test_a_stretch_is_the_sum_of_its_steps() -> None:
    (found,) = stretches(step(i, i + 4) for i in (1, 2, 3))
    assert (found.first_id, found.last_id, found.first_step, found.last_step) == (1, 3, 5, 7)
    assert (found.first_end_us, found.end_us, found.first_us) == (50_000_000, 70_000_000, 10_000_000)
    assert found.steps_us == found.waits_known_us == found.phases_known_us == 30_000_000
    assert (found.communication_us, found.bubble_us) == (9_000_000, 9_000_000)
    assert (found.data_us, found.checkpoint_us) == (750_000, 1_500_000)
    assert found.usual_us == 10_000_000


def test_a_new_one_begins_where_training_goes_back_with_each_attempt_and_when_one_is_full() -> None:
    back = stretches([step(1, 1), step(2, 2), step(3, 2), step(4, 3)])
    assert [(one.first_step, one.last_step) for one in back] == [(1, 2), (2, 3)]
    again = stretches([step(1, 1), step(2, 2, attempt=2)])
    assert [one.attempt for one in again] == [1, 2]
    full = stretches(step(i, i) for i in range(1, STEPS + 2))
    assert [one.count for one in full] == [STEPS, 1]


def test_steps_added_later_give_the_same_stretches() -> None:
    every = [step(i, i) for i in range(1, 600)]
    found: list[Stretch] = []
    for begin in range(0, len(every), 7):
        found[-1:] = stretches(every[begin : begin + 7], found[-1] if found else None)
    assert found == stretches(every)


def test_what_is_trained_again_or_not_kept_is_lost() -> None:
    found = stretches([step(1, 1), step(2, 2), step(3, 3), step(4, 2, attempt=2), step(5, 3, attempt=2)])
    assert lost_from(found, None) == [2, float("inf")]
    assert lost_from(found, 1) == [2, 2]
    assert lost_from([], 3) == []


def test_what_a_program_says_of_a_step_is_bounded() -> None:
    wild = one_step(1, 1, 1, 0, 1e300, {"exposed_s": {"tp": 1e18}, "phases_s": {"data": 1e18}})
    assert max(wild.steps_us, wild.communication_us, wild.data_us) * STEPS < 2**63
