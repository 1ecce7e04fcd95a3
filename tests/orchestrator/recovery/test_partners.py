"""Copies lie in another failure domain, and no node keeps more of them than another."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from orchestrator.recovery.partners import partners
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def fabric_of(leaves: dict[str, list[str]], tier: Tier = Tier.LEAF) -> Fabric:
    return Fabric(tuple(Node(name, 2, {tier: leaf}) for leaf, names in leaves.items() for name in names))


def slots_on(*nodes: str) -> list[Slot]:
    return [Slot(node, index) for node in nodes for index in (0, 1)]


def leaf_of(fabric: Fabric, node: str) -> str | None:
    return fabric.domain(Slot(node, 0), Tier.LEAF)


def test_two_leaves_keep_each_others_copies() -> None:
    fabric = fabric_of({"A": ["a0", "a1"], "B": ["b0", "b1"]})
    # The order of the ranks mixes the leaves; the ring does not.
    assert partners(slots_on("a0", "b0", "a1", "b1"), fabric, replicas=1) == {
        "a0": ("b0",),
        "a1": ("b1",),
        "b0": ("a0",),
        "b1": ("a1",),
    }


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (3, 2, 1), (4, 4, 4, 4), (1, 2, 3, 4), (5, 3, 2)])
def test_copies_leave_the_leaf_wherever_no_leaf_has_more_than_half(sizes: tuple[int, ...]) -> None:
    leaves = {f"L{i}": [f"l{i}n{j}" for j in range(size)] for i, size in enumerate(sizes)}
    fabric = fabric_of(leaves)
    nodes = [name for names in leaves.values() for name in names]
    chosen = partners(slots_on(*nodes), fabric, replicas=1)
    assert max(sizes) * 2 <= sum(sizes), "what the rule is about"
    for node, (partner,) in chosen.items():
        assert leaf_of(fabric, node) != leaf_of(fabric, partner)
    assert set(Counter(itertools.chain(*chosen.values())).values()) == {1}


@pytest.mark.parametrize("sizes", [(3, 1), (5, 2), (2, 2, 1), (4,)])
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_any_k_nodes_may_go_with_k_replicas(sizes: tuple[int, ...], replicas: int) -> None:
    leaves = {f"L{i}": [f"l{i}n{j}" for j in range(size)] for i, size in enumerate(sizes)}
    nodes = [name for names in leaves.values() for name in names]
    chosen = partners(slots_on(*nodes), fabric_of(leaves), replicas=replicas)
    places = min(replicas, len(nodes) - 1)
    for lost in itertools.combinations(nodes, places):
        for node in nodes:
            assert {node, *chosen[node]}.difference(lost), f"all of {node} is lost with {lost}"
    assert set(Counter(itertools.chain(*chosen.values())).values()) == {places}, "all give and keep alike"


def test_one_leaf_of_several_islands_crosses_islands() -> None:
    fabric = fabric_of({"i0": ["a", "b"], "i1": ["c", "d"]}, tier=Tier.ISLAND)
    chosen = partners(slots_on("a", "b", "c", "d"), fabric, replicas=1)
    assert chosen == {"a": ("c",), "b": ("d",), "c": ("a",), "d": ("b",)}


def test_nodes_whose_leaf_is_unknown_share_none() -> None:
    fabric = Fabric((Node("a", 2), Node("b", 2), Node("c", 2, {Tier.LEAF: "L"})))
    chosen = partners(slots_on("a", "b", "c"), fabric, replicas=1)
    assert all(node not in found and len(found) == 1 for node, found in chosen.items())


def test_a_job_on_one_node_has_no_partner() -> None:
    assert partners(slots_on("a"), fabric_of({"A": ["a"]}), replicas=1) == {"a": ()}
    assert partners(slots_on("a", "b"), fabric_of({"A": ["a", "b"]}), replicas=0) == {"a": (), "b": ()}
