"""What a gang can go on from, given what every vault says it holds.

Tests named by row are about faults that users of similar systems reported (field-faults.md).
"""

from __future__ import annotations

from orchestrator.recovery.snapshots import Copy, Generation, plan_digest, restorable

PLAN = plan_digest({"tp": 1, "dp": 2}, 2)
OLD, NEW = Generation(1, 1, 0, 10), Generation(1, 1, 0, 20)


def copy(node: str, rank: int, generation: Generation, plan: str = PLAN) -> Copy:
    return Copy(node, rank, generation, 100, "0" * 64, plan)


def test_the_newest_of_which_every_rank_has_a_copy_comes_first() -> None:
    copies = [
        copy(node, rank, g) for g in (OLD, NEW) for node, rank in (("a", 0), ("b", 0), ("b", 1), ("a", 1))
    ]
    found = restorable(copies, ["a", "b"], PLAN)
    assert [one.generation for one in found.restorable] == [NEW, OLD]
    assert found.restorable[0].sources == (("a", "b"), ("b", "a")), "its own node first"
    assert found.refused == ()


def test_a_generation_that_one_rank_has_not_finished_is_refused_and_says_whose() -> None:
    copies = [copy("a", 0, OLD), copy("a", 1, OLD), copy("a", 0, NEW)]
    found = restorable(copies, ["a", "b"], PLAN)
    assert [one.generation for one in found.restorable] == [OLD]
    assert found.restorable[0].sources == (("a",), ("a",)), "what node b had is lost with it"
    assert found.refused == ((20, "no node holds that of rank 1"),)


def test_row_66_generations_are_never_mixed_even_at_the_same_step() -> None:
    again = Generation(1, 2, 0, 10)
    found = restorable([copy("a", 0, OLD), copy("b", 1, again)], ["a", "b"], PLAN)
    assert found.restorable == ()
    assert [step for step, _ in found.refused] == [10, 10]


def test_a_later_attempt_is_newer_whatever_its_step() -> None:
    later = Generation(1, 2, 0, 15)  # it began from a checkpoint before step 20
    after_rewind = Generation(1, 2, 1, 12)
    next_supervisor = Generation(2, 3, 0, 5)
    copies = [copy("a", rank, g) for rank in (0, 1) for g in (NEW, next_supervisor, later, after_rewind)]
    found = restorable(copies, ["a", "a"], PLAN)
    assert [one.generation for one in found.restorable] == [next_supervisor, after_rewind, later, NEW]


def test_row_72_another_plan_is_refused_and_never_read_in_part() -> None:
    other = plan_digest({"tp": 2, "dp": 1}, 2)
    assert other != PLAN != plan_digest({"tp": 1, "dp": 2}, 4)
    assert plan_digest({"dp": 2, "tp": 1}, 2) == PLAN, "the order of the keys says nothing"
    found = restorable([copy("a", rank, OLD, other) for rank in range(2)], ["a", "a"], PLAN)
    assert found.restorable == ()
    ((step, why),) = found.refused
    assert step == 10
    assert "another plan" in why


def test_nothing_is_found_where_nothing_is_held() -> None:
    assert restorable([], ["a"], PLAN).restorable == ()
