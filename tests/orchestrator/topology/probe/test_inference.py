"""Leaves from rates: those that were put in are found, and nothing is guessed."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.probe.findings import Measurement
from orchestrator.topology.probe.inference import leaves_of, with_leaves
from orchestrator.topology.probe.rounds import Pair, rounds_of


def rates(
    leaves: list[list[str]], fast: float = 10.0, slow: float = 4.0, noise: float = 0.0
) -> dict[tuple[str, str], float]:
    leaf = {name: number for number, names in enumerate(leaves) for name in names}
    random = Random(2)
    return {
        (a, b): (fast if leaf[a] == leaf[b] else slow) * random.uniform(1 - noise, 1 + noise)
        for a, b in combinations(leaf, 2)
    }


@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_leaves_of_any_size_are_found(noise: float) -> None:
    for leaves in (
        [["a", "b"], ["c", "d"]],
        [["a", "b", "c"], ["d"], ["e", "f"]],
        [["n1", "n2", "n10"], ["n3"]],
    ):
        assert leaves_of(rates(leaves, noise=noise)) == leaves


def test_rates_that_hardly_differ_tell_nothing() -> None:
    assert leaves_of(rates([["a", "b"], ["c", "d"]], slow=7.0)) is None
    assert leaves_of({}) is None
    assert leaves_of({("a", "b"): 3.0}) is None


def test_a_slow_pair_among_near_ones_makes_it_unclear() -> None:
    assert leaves_of(rates([["a", "b", "c"], ["d", "e", "f"]]) | {("a", "b"): 4.0}) is None


def test_groups_that_never_met_may_be_one() -> None:
    some = rates([["a", "b"], ["c", "d"], ["e", "f"]])
    for pair in (("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")):
        del some[pair]
    assert leaves_of(some) is None


def test_a_fabric_without_labels_is_completed_and_what_is_known_stays() -> None:
    nodes = tuple(Node(f"n{i}", 1, {Tier.ISLAND: f"n{i}"}) for i in range(4))
    known = Node("known", 1, {Tier.LEAF: "l9"})
    fabric = Fabric((*nodes, known))
    near = {frozenset(("n0", "n2")), frozenset(("n1", "n3"))}
    told = [
        Measurement(pair, one.tier, number, out=rate, back=rate)
        for number, one in enumerate(rounds_of(fabric, {node.name: (0,) for node in fabric.nodes}, 8))
        for pair in one.pairs
        for rate in [9.0 if frozenset((pair.a.node, pair.b.node)) in near else 3.0]
    ]
    completed = with_leaves(fabric, told)
    assert completed is not None
    assert {node.name: node.domains.get(Tier.LEAF) for node in completed.nodes} == {
        "n0": "measured-0",
        "n1": "measured-1",
        "n2": "measured-0",
        "n3": "measured-1",
        "known": "l9",
    }
    assert with_leaves(completed, told) is None  # nothing is left to tell
    assert with_leaves(fabric, [replace(m, error="no answer") for m in told]) is None


def test_a_pair_counts_by_the_best_it_was_seen_at() -> None:
    """Slowed down once, by others on the same uplink or by a busy host."""
    pair = Pair(Slot("n0", 0), Slot("n1", 0))
    far = Pair(Slot("n0", 0), Slot("n2", 0))
    other = Pair(Slot("n1", 0), Slot("n2", 0))
    told = [
        Measurement(p, Tier.ANY, 0, out=rate, back=rate)
        for p, rate in ((pair, 1.0), (pair, 9.0), (far, 3.0), (other, 3.0))
    ]
    completed = with_leaves(Fabric(tuple(Node(f"n{i}", 1) for i in range(3))), told)
    assert completed is not None
    assert [node.domains[Tier.LEAF] for node in completed.nodes] == ["measured-0", "measured-0", "measured-1"]
