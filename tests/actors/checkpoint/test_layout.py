"""Names and pruning of checkpoint directories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.checkpoint import layout


def test_names_order_by_step_then_sequence() -> None:
    names = [
        "step-00000002",
        "step-00000010",
        "step-00000010-2",
        "step-00000010-11",
        ".attempt-1-step-99",
        "notes",
    ]
    assert layout.newest_first(names) == [
        "step-00000010-11",
        "step-00000010-2",
        "step-00000010",
        "step-00000002",
    ]


def test_a_step_beyond_eight_digits_still_parses() -> None:
    assert layout.parse_committed(layout.free_name([], 123_456_789)) == (123_456_789, 1)


def test_a_free_name_overwrites_none_and_comes_last() -> None:
    names = ["step-00000010", "step-00000010-3"]
    name = layout.free_name(names, 10)
    assert name == "step-00000010-4"
    assert layout.newest_first([*names, name])[0] == name


def test_leftovers_are_those_of_this_and_earlier_attempts() -> None:
    names = [
        layout.writing_name("1-2", 5),
        layout.writing_name("1-10", 5),
        layout.writing_name("2-1", 5),
        layout.pruned_name("step-00000001"),
        "step-00000004",
    ]
    assert set(layout.leftovers(names, "1-9")) == {names[0], names[3]}
    assert set(layout.leftovers(names, "2-1")) == set(names[:4])


def test_damaged_checkpoints_do_not_count_for_keep() -> None:
    names = ["step-00000005", "step-00000004", "step-00000003", "step-00000002"]
    damaged = {"step-00000005", "step-00000004"}
    assert layout.superfluous(names, committed="step-00000003", damaged=damaged, keep=3) == []
    assert layout.superfluous(names, committed="step-00000003", damaged=damaged, keep=2) == names[:2]
    assert layout.superfluous(names, committed="step-00000003", damaged=damaged, keep=1) == [
        *names[:2],
        names[3],
    ]


@given(
    steps=st.sets(st.integers(0, 10**9), min_size=1, max_size=12), keep=st.integers(1, 6), choice=st.randoms()
)
def test_pruning_keeps_the_committed_one_and_as_many_good_ones_as_asked(
    steps: set[int], keep: int, choice: object
) -> None:
    names = [layout.free_name([], step) for step in steps]
    committed = choice.choice(names)  # type: ignore[attr-defined]
    damaged = {name for name in names if name != committed and choice.random() < 0.3}  # type: ignore[attr-defined]
    gone = set(layout.superfluous(names, committed=committed, damaged=damaged, keep=keep))
    assert committed not in gone
    good_left = set(names) - gone - damaged
    assert len(good_left) == min(keep, len(set(names) - damaged))
    ordered_left = [name for name in layout.newest_first(good_left) if name != committed]
    ordered_gone = layout.newest_first(gone - damaged)
    if ordered_left and ordered_gone:
        assert layout.parse_committed(ordered_left[-1]) > layout.parse_committed(ordered_gone[0])  # type: ignore[operator]
