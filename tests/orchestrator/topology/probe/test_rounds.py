"""Who measures with whom."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.probe.rounds import Round, evenly, rounds_of, tournament


@pytest.mark.parametrize("count", range(2, 12))
def test_everybody_meets_everybody_once_in_as_few_rounds_as_can_be(count: int) -> None:
    rounds = tournament(range(count))
    assert len(rounds) == (count - 1 if count % 2 == 0 else count)
    met = Counter(tuple(sorted(pair)) for pairs in rounds for pair in pairs)
    assert met == Counter(combinations(range(count), 2))
    for pairs in rounds:
        assert max(Counter(player for pair in pairs for player in pair).values()) == 1


def test_one_alone_meets_nobody() -> None:
    assert tournament(["a"]) == [[]]
    assert tournament([]) == []


def fabric(leaves: int, nodes: int, accelerators: int = 2) -> Fabric:
    return Fabric(
        tuple(
            Node(
                f"l{leaf}n{i}",
                accelerators,
                {Tier.ISLAND: f"l{leaf}n{i}", Tier.LEAF: f"l{leaf}", Tier.SPINE: "s"},
            )
            for leaf in range(leaves)
            for i in range(nodes)
        )
    )


def ends(where: Fabric) -> dict[str, tuple[int, ...]]:
    return {node.name: tuple(range(min(2, node.accelerators))) for node in where.nodes}


def by_kind(rounds: list[Round]) -> dict[tuple[Tier, bool], list[Round]]:
    found: dict[tuple[Tier, bool], list[Round]] = {}
    for one in rounds:
        found.setdefault((one.tier, one.loaded), []).append(one)
    return found


def test_two_leaves_of_four_nodes() -> None:
    """Inside: each node with itself. Leaf: 3 rounds, in each both leaves have 2 pairs. Spine: two leaves meet once, in
    4 shifts: a single pair, then 4 at once."""
    found = by_kind(rounds_of(fabric(2, 4), ends(fabric(2, 4)), most=8))
    assert {kind: [len(one.pairs) for one in some] for kind, some in found.items()} == {
        (Tier.ISLAND, False): [8],
        (Tier.LEAF, False): [4, 4, 4],
        (Tier.SPINE, False): [1, 1, 1, 1],
        (Tier.SPINE, True): [4, 4, 4, 4],
    }
    inside = found[Tier.ISLAND, False][0].pairs[0]
    assert (inside.a, inside.b) == (Slot("l0n0", 0), Slot("l0n0", 1))
    leaf = {frozenset((p.a.node, p.b.node)) for one in found[Tier.LEAF, False] for p in one.pairs}
    assert len(leaf) == 12  # 6 in each leaf
    assert all(pair == frozenset(pair) and len({name[:2] for name in pair}) == 1 for pair in leaf)
    loaded = Counter(frozenset((p.a.node, p.b.node)) for one in found[Tier.SPINE, True] for p in one.pairs)
    assert len(loaded) == 16  # every node of one leaf with every one of the other
    single = {end.node for one in found[Tier.SPINE, False] for p in one.pairs for end in (p.a, p.b)}
    assert len(single) == 8  # another pair each time


@pytest.mark.parametrize(
    ("leaves", "nodes", "most"), [(1, 5, 3), (3, 4, 8), (5, 3, 2), (8, 16, 8), (4, 1, 9)]
)
def test_nobody_is_in_two_pairs_of_a_round_and_no_tier_has_more_rounds_than_asked(
    leaves: int, nodes: int, most: int
) -> None:
    where = fabric(leaves, nodes)
    found = by_kind(rounds_of(where, ends(where), most=most))
    for (tier, loaded), some in found.items():
        assert len(some) <= most
        for one in some:
            assert max(Counter(end for p in one.pairs for end in (p.a, p.b)).values()) == 1
            if tier is Tier.SPINE and not loaded:  # no two pairs share an uplink
                assert max(Counter(end.node[:2] for p in one.pairs for end in (p.a, p.b)).values()) == 1


def test_without_labels_all_nodes_meet_over_the_widest_tier() -> None:
    where = Fabric(tuple(Node(f"n{i}", 1) for i in range(4)))
    found = rounds_of(where, ends(where), most=8)
    assert [(one.tier, len(one.pairs), one.loaded) for one in found] == [(Tier.ANY, 2, False)] * 3


def test_an_island_of_many_nodes_is_a_tier_among_them() -> None:
    where = Fabric(tuple(Node(f"n{i}", 4, {Tier.ISLAND: f"r{i // 2}", Tier.LEAF: "l"}) for i in range(4)))
    kinds = [(one.tier, len(one.pairs), one.loaded) for one in rounds_of(where, ends(where), most=1)]
    assert kinds == [
        (Tier.ISLAND, 4, False),  # inside each node
        (Tier.ISLAND, 2, False),  # between the nodes of each island
        (Tier.LEAF, 1, False),
        (Tier.LEAF, 2, True),
    ]


def test_nodes_that_cannot_measure_are_left_out() -> None:
    where = fabric(1, 3)
    found = rounds_of(where, {"l0n0": (0,), "l0n2": (1,)}, most=8)
    assert [[(p.a, p.b) for p in one.pairs] for one in found] == [[(Slot("l0n0", 0), Slot("l0n2", 1))]]


def test_islands_smaller_than_the_node_are_told_from_the_node() -> None:
    node = Node("n", 4, islands={0: "n/a", 1: "n/a", 2: "n/b", 3: "n/b"})
    assert [one.tier for one in rounds_of(Fabric((node,)), {"n": (0, 1)}, most=1)] == [Tier.ISLAND]
    assert [one.tier for one in rounds_of(Fabric((node,)), {"n": (1, 2)}, most=1)] == [Tier.NODE]


def test_rounds_are_spread_evenly() -> None:
    assert evenly(3, 8) == [0, 1, 2]
    assert evenly(100, 4) == [0, 25, 50, 75]
