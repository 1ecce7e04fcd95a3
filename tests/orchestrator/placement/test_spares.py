from __future__ import annotations

from dataclasses import replace

from orchestrator.placement.spares import spares_by_leaf
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def cluster() -> Fabric:
    """Leaves l0 (n0 ... n3) and l1 (n4 ... n7), nodes of two."""
    return Fabric(
        tuple(
            Node(f"n{i}", 2, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i // 4}"}, accelerator="H100")
            for i in range(8)
        )
    )


def test_spares_lie_under_the_leaves_of_the_job_and_broken_nodes_come_first() -> None:
    fabric = cluster()
    placed = [Slot("n0", 0), Slot("n4", 0)]
    free = fabric.slots() - set(placed) - {Slot("n2", 1)}
    assert spares_by_leaf(fabric, free, placed, per_leaf=2) == {"l0": ("n2", "n1"), "l1": ("n5", "n6")}


def test_a_spare_has_room_for_all_ranks_of_a_node_and_is_neither_dead_cordoned_suspect_nor_of_another_type() -> (
    None
):
    fabric = cluster()
    changed = {"n5": {"alive": False}, "n6": {"schedulable": False}, "n2": {"accelerator": "A100"}}
    fabric = Fabric(tuple(replace(node, **changed.get(node.name, {})) for node in fabric.nodes))
    placed = [Slot("n0", 0), Slot("n0", 1), Slot("n4", 0)]
    free = fabric.slots() - set(placed) - {Slot("n1", 0)}
    found = spares_by_leaf(fabric, free, placed, per_leaf=3, suspect={"n7"})
    assert found == {"l0": ("n3",), "l1": ()}


def test_where_islands_span_nodes_a_spare_is_in_the_island() -> None:
    nodes = (Node(f"n{i}", 4, {Tier.ISLAND: f"rack{i // 3}", Tier.LEAF: "l0"}) for i in range(6))
    fabric = Fabric(tuple(nodes))
    placed = [Slot("n0", i) for i in range(4)]
    assert spares_by_leaf(fabric, fabric.slots() - set(placed), placed, per_leaf=9) == {"rack0": ("n1", "n2")}


def test_a_node_whose_leaf_is_unknown_has_no_spare() -> None:
    fabric = Fabric((Node("n0", 1), Node("n1", 1)))
    assert spares_by_leaf(fabric, {Slot("n1", 0)}, [Slot("n0", 0)], per_leaf=1) == {}
