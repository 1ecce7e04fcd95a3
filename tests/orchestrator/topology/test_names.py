from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.topology.names import natural_key


def test_numbers_sort_as_numbers() -> None:
    names = ["n10", "n2", "rack1-n3", "n1", "rack1-n20", "n01", "a"]
    assert sorted(names, key=natural_key) == ["a", "n01", "n1", "n2", "n10", "rack1-n3", "rack1-n20"]


@given(st.text(), st.text())
def test_keys_compare_and_only_equal_names_are_equal(a: str, b: str) -> None:
    assert (natural_key(a) == natural_key(b)) == (a == b)
    assert (natural_key(a) < natural_key(b)) or (natural_key(b) < natural_key(a)) or a == b
