"""Which nodes are used last, which types are mixed, and which accelerator of a node a rank gets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from orchestrator.placement.demand import Demand, Pattern, Workload
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import free_room
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def cluster(*kinds: str, width: int = 4) -> Fabric:
    return Fabric(
        tuple(
            Node(f"n{i}", width, {Tier.ISLAND: f"n{i}", Tier.LEAF: "l0"}, accelerator=kind)
            for i, kind in enumerate(kinds)
        )
    )


def ask(
    fabric: Fabric,
    plan: ParallelismSpec,
    *,
    busy: Iterable[Slot] = (),
    suspect: frozenset[str] = frozenset(),
    mix: bool = False,
    rules: PlacementSpec | None = None,
    workload: Workload | None = None,
) -> Placement | Refusal:
    return solve(
        Mesh.of(plan),
        rules or PlacementSpec(),
        fabric,
        fabric.slots() - set(busy),
        resources=ResourcesSpec(mix_accelerators=mix),
        suspect=suspect,
        workload=workload,
    )


def placed(answer: Placement | Refusal) -> list[tuple[str, int]]:
    assert isinstance(answer, Placement), answer
    return [(slot.node, slot.index) for slot in answer.slots]


def test_suspect_nodes_are_used_only_by_a_job_that_does_not_fit_without() -> None:
    fabric = cluster("H100", "H100", "H100")
    suspect = frozenset({"n0"})
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=4, dp=2), suspect=suspect))} == {
        "n1",
        "n2",
    }
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=4, dp=3), suspect=suspect))} == {
        "n0",
        "n1",
        "n2",
    }


def test_nodes_whose_leaf_is_unknown_are_used_last_though_no_rule_needs_it() -> None:
    lost = Node("a0", 4, {Tier.ISLAND: "a0"}, accelerator="H100")
    fabric = Fabric((lost, *cluster("H100").nodes))
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=2)))} == {"n0"}
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=2, dp=4)))} == {"a0", "n0"}


def test_types_are_mixed_when_the_job_says_so() -> None:
    fabric = cluster("H100", "A100")
    assert isinstance(ask(fabric, ParallelismSpec(tp=4, dp=2)), Refusal)
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=4, dp=2), mix=True))} == {"n0", "n1"}


def test_replicas_use_the_same_accelerators_of_their_nodes() -> None:
    """Three are free on each node, 0 to 2 on one and 1 to 3 on the other: tensor ranks 1 and 2 keep their rail, rank 0
    of the second replica takes what is left. Packing alone would put every rank beside its rail."""
    fabric = cluster("H100", "H100")
    busy = [Slot("n0", 3), Slot("n1", 0)]
    assert placed(ask(fabric, ParallelismSpec(tp=3, dp=2), busy=busy)) == [
        ("n0", 0),
        ("n0", 1),
        ("n0", 2),
        ("n1", 3),
        ("n1", 1),
        ("n1", 2),
    ]


def test_stages_of_one_replica_share_rails_too() -> None:
    fabric = cluster("H100", "H100")
    found = placed(
        ask(fabric, ParallelismSpec(tp=2, pp=2), busy=[Slot("n0", 2), Slot("n0", 3), Slot("n1", 2)])
    )
    assert sorted(index for node, index in found if node == "n0") in ([], [0, 1])
    assert [index for _, index in found] == [0, 1, 0, 1]


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", None])
def test_an_order_that_breaks_a_rule_gives_way_and_the_placement_says_so(order: str | None) -> None:
    """Leaves of two nodes of one: pipelines of two lie under leaves only if they are laid out before replicas."""
    fabric = Fabric(
        tuple(Node(f"n{i}", 1, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i // 2}"}) for i in range(6))
    )
    rules = PlacementSpec(pp=AxisRule(tier=Tier.LEAF), order=order)
    answer = ask(fabric, ParallelismSpec(pp=2, dp=3), rules=rules)
    assert isinstance(answer, Placement)
    said = "the order asked for breaks the rules; the default order is used"
    assert (said in answer.explanation) == (order is not None)


def test_a_ring_of_replicas_enters_and_leaves_each_leaf_once() -> None:
    """Six replicas over leaves of three nodes whose names alternate: in order of names it would cross six times."""
    fabric = Fabric(
        tuple(
            Node(f"n{i}", 1, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i % 2}", Tier.SPINE: "s"})
            for i in range(6)
        )
    )
    plan = ParallelismSpec(dp=6)
    workload = Workload(plan, (Demand("dp", Pattern.RING, 6, 1e9, 0),))
    found = placed(ask(fabric, plan, workload=workload))
    leaves = [int(node[1:]) % 2 for node, _ in found]
    assert sum(a != b for a, b in zip(leaves, leaves[1:] + leaves[:1], strict=True)) == 2


def island(**more: object) -> Fabric:
    return Fabric((Node("n0", 8, {Tier.ISLAND: "n0", Tier.LEAF: "l0"}, accelerator="V100", **more),))  # type: ignore[arg-type]


CUBE = frozenset({(0, 1), (0, 2), (1, 3), (2, 3), (4, 5), (4, 6), (5, 7), (6, 7)})
"""The single links of a DGX-1V's cube: NVIDIA's figure has two links 0-3, 0-4, 1-2, 1-5, 2-6, 3-7, 4-7, 5-6."""
NONE = frozenset((a, b) for a in range(8) for b in range(a + 1, 8)) - CUBE
DOUBLE = frozenset({(0, 3), (0, 4), (1, 2), (1, 5), (2, 6), (3, 7), (4, 7), (5, 6)})


def test_tensor_pairs_get_accelerators_with_the_most_links() -> None:
    fabric = island(weak_pairs=frozenset(CUBE | (NONE - DOUBLE)))
    slots = placed(ask(fabric, ParallelismSpec(tp=2, dp=4)))
    pairs = {tuple(sorted((slots[i][1], slots[i + 1][1]))) for i in range(0, 8, 2)}
    assert pairs <= DOUBLE
    assert len({index for _, index in slots}) == 8


def test_a_group_that_cannot_keep_off_weak_pairs_says_so() -> None:
    fabric = island(weak_pairs=frozenset({(0, 1)}))
    answer = ask(fabric, ParallelismSpec(tp=8))
    assert isinstance(answer, Placement)
    assert "tp on node n0 spans weak pairs, with fewer links than the others: 0-1" in answer.explanation
    four = ask(fabric, ParallelismSpec(tp=4))
    assert {index for _, index in placed(four)} & {0, 1} != {0, 1}
    assert not any("weak" in sentence for sentence in four.explanation)  # type: ignore[union-attr]


def test_accelerators_cut_into_parts_take_no_ranks() -> None:
    fabric = island(partitioned=frozenset({0, 3}))
    assert {index for _, index in placed(ask(fabric, ParallelismSpec(tp=6)))} == {1, 2, 4, 5, 6, 7}
    refused = ask(fabric, ParallelismSpec(tp=8))
    assert isinstance(refused, Refusal)
    assert not refused.ever
    said = " ".join((refused.message, *refused.details))
    assert "2 accelerators cut into parts (MIG) take no ranks (n0)" in said
    whole = ask(island(partitioned=frozenset(range(8))), ParallelismSpec(tp=2))
    assert isinstance(whole, Refusal)
    assert "8 accelerators cut into parts (MIG) take no ranks (n0)" in " ".join(
        (whole.message, *whole.details)
    )


def test_accelerators_cut_into_parts_are_not_free() -> None:
    room = free_room(island(partitioned=frozenset({0, 3})), [])
    assert sorted(slot.index for slot in room.slots) == [1, 2, 4, 5, 6, 7]


def test_a_node_measured_bad_is_used_last() -> None:
    nodes = cluster("H100", "H100").nodes
    fabric = Fabric((replace(nodes[0], suspect=True), nodes[1]))
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=4)))} == {"n1"}
    assert {node for node, _ in placed(ask(fabric, ParallelismSpec(tp=4, dp=2)))} == {"n0", "n1"}
