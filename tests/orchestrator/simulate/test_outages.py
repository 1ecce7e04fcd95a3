"""Faults that a person writes down. 2 leaves x 2 nodes: l0n0, l0n1, l1n0, l1n1."""

from __future__ import annotations

import pytest

from orchestrator.simulate.outages import read_outages
from orchestrator.simulate.philly import InvalidTraceError
from tests.orchestrator.queue.small_cluster import fabric


def changes(text: str) -> list[tuple[float, str, bool]]:
    found = read_outages(text, fabric(), origin="f.yaml")
    assert found == sorted(found)
    return [(change.at_s, change.node, change.alive) for change in found]


def test_a_leaf_dies_for_good() -> None:
    assert changes("[{down: leaf=l1}]") == [(0.0, "l1n0", False), (0.0, "l1n1", False)]


def test_a_node_comes_back() -> None:
    assert changes("- {down: node=l0n1, at_s: 60, for_s: 30}") == [
        (60.0, "l0n1", False),
        (90.0, "l0n1", True),
    ]


def test_outages_of_one_node_that_overlap_are_one() -> None:
    """10-30 and 20-50 are 10-50; 50-60 touches it; 80 has no end, and what begins in it is not heard of."""
    text = "".join(
        f"- {{down: node=l0n0, {rest}}}\n"
        for rest in (
            "at_s: 80",
            "at_s: 20, for_s: 30",
            "at_s: 10, for_s: 20",
            "at_s: 50, for_s: 10",
            "at_s: 90, for_s: 1",
        )
    )
    assert changes(text) == [(10.0, "l0n0", False), (60.0, "l0n0", True), (80.0, "l0n0", False)]


def test_every_wrong_entry_is_named() -> None:
    text = "- {down: leaf=l9}\n- {down: leaf=l0, at_s: -1, until: 5}\n- {down: l0}\n- 7\n"
    with pytest.raises(InvalidTraceError) as refused:
        read_outages(text, fabric(), origin="f.yaml")
    told = str(refused.value)
    assert "entry 1: down: the fabric has no leaf l9; there are: l0, l1" in told
    assert "entry 2: at_s: must be at least 0" in told
    assert "entry 2: until: is not a known key" in told
    assert "entry 3: down: 'l0' names no part of the fabric" in told
    assert "entry 4: must be a mapping" in told


@pytest.mark.parametrize("number", [".inf", ".nan", "1e300"])
def test_times_without_end_are_refused(number: str) -> None:
    for field in ("at_s", "for_s"):
        with pytest.raises(InvalidTraceError, match=f"entry 1: {field}: must be"):
            changes(f"- {{down: leaf=l0, {field}: {number}}}")


@pytest.mark.parametrize("text", ["", "{down: leaf=l0}", "leaf=l0"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(InvalidTraceError, match=r"f\.yaml has no faults: expected a list of outages"):
        read_outages(text, fabric(), origin="f.yaml")


def test_text_that_is_no_yaml() -> None:
    with pytest.raises(InvalidTraceError, match=r"f\.yaml: line 1"):
        read_outages("[{down: leaf=l0", fabric(), origin="f.yaml")
