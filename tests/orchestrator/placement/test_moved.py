"""Another place for the part of a job that lost nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.moved import Moved, Part, dropped, moved_part
from orchestrator.placement.placement import Refusal
from orchestrator.placement.room import Holding, free_room
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def fabric_of(leaves: int, nodes: int, slots: int = 2, **changed: dict[str, Any]) -> Fabric:
    """Nodes l0n0, l0n1 ... of two slots, each an island."""
    return Fabric(
        tuple(
            replace(
                Node(name, slots, {Tier.ISLAND: name, Tier.LEAF: f"l{leaf}"}, accelerator="H100"),
                **changed.get(name, {}),
            )
            for leaf in range(leaves)
            for node in range(nodes)
            for name in [f"l{leaf}n{node}"]
        )
    )


def whole(*nodes: str, slots: int = 2) -> tuple[Slot, ...]:
    return tuple(Slot(node, index) for node in nodes for index in range(slots))


def ask(
    fabric: Fabric,
    plan: ParallelismSpec,
    placed: tuple[Slot, ...],
    *lost: str,
    held: tuple[Slot, ...] = (),
    rules: PlacementSpec | None = None,
    resources: ResourcesSpec | None = None,
) -> Moved | Refusal:
    living = Fabric(tuple(node for node in fabric.nodes if node.name not in lost))
    resources = resources or ResourcesSpec()
    room = free_room(living, [Holding(placed, resources.cpus_per_rank), Holding(held, 0.0)])
    return moved_part(
        Part(Mesh.of(plan), rules or PlacementSpec(), resources, fabric, room, placed, frozenset(lost))
    )


def moved(answer: Moved | Refusal) -> Moved:
    assert isinstance(answer, Moved), answer
    return answer


TP2_PP2_DP2 = ParallelismSpec(tp=2, pp=2, dp=2, microbatches=2)
TWO_LEAVES = whole("l0n0", "l0n1", "l1n0", "l1n1")
"""A pipeline of two nodes under each leaf."""


def test_a_spare_of_the_leaf_takes_over_with_the_same_indexes() -> None:
    found = moved(ask(fabric_of(2, 3), TP2_PP2_DP2, TWO_LEAVES, "l1n0"))
    assert found.placement.slots == whole("l0n0", "l0n1", "l1n2", "l1n1")
    assert (found.near, found.ranks, found.left, found.passed_over) == (True, (4, 5), (), ())
    assert {axis.axis: axis.outside for axis in found.placement.axes} == {"tp": 0, "pp": 0, "dp": 0}


def test_other_indexes_where_the_same_are_taken() -> None:
    fabric = fabric_of(1, 2, slots=4)
    found = moved(ask(fabric, ParallelismSpec(tp=2), whole("l0n0"), "l0n0", held=(Slot("l0n1", 1),)))
    assert found.placement.slots == (Slot("l0n1", 0), Slot("l0n1", 2))


def test_the_nodes_own_count_is_asked_for_and_no_more() -> None:
    """Two ranks on the node that stays, one on the lost one: a node with one free accelerator will do."""
    placed = (*whole("l0n0"), Slot("l0n1", 0))
    found = moved(ask(fabric_of(1, 3), ParallelismSpec(dp=3), placed, "l0n1", held=(Slot("l0n2", 0),)))
    assert found.placement.slots == (*whole("l0n0"), Slot("l0n2", 1))


def test_two_lost_nodes_get_two_spares_or_the_refusal_names_the_one_without() -> None:
    plan, placed = ParallelismSpec(tp=2, dp=2), whole("l0n0", "l0n1")
    found = moved(ask(fabric_of(1, 4), plan, placed, "l0n0", "l0n1"))
    assert {slot.node for slot in found.placement.slots} == {"l0n2", "l0n3"}
    answer = ask(fabric_of(1, 3), plan, placed, "l0n0", "l0n1")
    assert isinstance(answer, Refusal)
    assert answer.details == (
        "no node of leaf l0 is free to stand in for l0n1",
        "every pipeline of the job has lost a node, so nothing of it could stay",
    )


@pytest.mark.parametrize(
    "wrong", [{"alive": False}, {"schedulable": False}, {"suspect": True}, {"accelerator": "A100"}]
)
def test_a_spare_is_none_that_could_not_take_the_ranks(wrong: dict[str, Any]) -> None:
    fabric = fabric_of(1, 3, l0n2=wrong)
    answer = ask(fabric, ParallelismSpec(tp=2, dp=2), whole("l0n0", "l0n1"), "l0n1")
    assert isinstance(answer, Refusal) or wrong == {"suspect": True}


def test_a_spare_without_the_cpus_is_none() -> None:
    resources = ResourcesSpec(cpus_per_rank=2)
    plan, placed = ParallelismSpec(tp=2, dp=2), whole("l0n0", "l0n1")
    for cpus, serves in ((3.0, False), (4.0, True)):
        fabric = fabric_of(1, 3, l0n2={"cpus": cpus})
        answer = ask(fabric, plan, placed, "l0n1", resources=resources)
        assert isinstance(answer, Moved) is serves


def test_without_a_spare_the_broken_pipeline_goes_under_another_leaf() -> None:
    """Its living node is given back."""
    found = moved(ask(fabric_of(3, 2), TP2_PP2_DP2, TWO_LEAVES, "l0n0"))
    assert found.placement.slots == (*whole("l2n0", "l2n1"), *TWO_LEAVES[4:])
    assert (found.near, found.ranks, found.left) == (False, (0, 1, 2, 3), whole("l0n1"))
    assert found.passed_over == ("no node of leaf l0 is free to stand in for l0n0",)


def test_a_rule_that_the_move_would_break_refuses_it() -> None:
    """dp under one spine is required; the third leaf hangs below another one."""
    spines = {
        f"l{leaf}n{node}": {
            "domains": {Tier.ISLAND: f"l{leaf}n{node}", Tier.LEAF: f"l{leaf}", Tier.SPINE: f"s{leaf // 2}"}
        }
        for leaf in range(3)
        for node in range(2)
    }
    fabric = fabric_of(3, 2, **spines)
    near = AxisRule(tier=Tier.SPINE)
    assert isinstance(ask(fabric, TP2_PP2_DP2, TWO_LEAVES, "l0n0"), Moved)
    answer = ask(fabric, TP2_PP2_DP2, TWO_LEAVES, "l0n0", rules=PlacementSpec(dp=near))
    assert isinstance(answer, Refusal)
    assert answer.details[1] == "moved, the broken pipelines would break the rule of dp"


def test_a_node_of_a_broken_and_of_a_whole_pipeline_is_not_torn_apart() -> None:
    """pp 2 x dp 2 crosswise: every node has a rank of either pipeline, but the lost one had two of the first."""
    plan = ParallelismSpec(pp=2, dp=2, microbatches=2)
    placed = (Slot("l0n0", 0), Slot("l0n1", 0), Slot("l0n1", 1), Slot("l0n2", 0))
    answer = ask(fabric_of(2, 3), plan, placed, "l0n0", held=(Slot("l0n2", 1),))
    assert isinstance(answer, Refusal)
    assert answer.details[1] == "node l0n1 has ranks of a pipeline that is broken and of one that is whole"


def test_row_10_never_three_here_and_one_there() -> None:
    """A pipeline over four nodes of a rack, one fails; the free nodes are in the other rack."""
    plan, placed = ParallelismSpec(pp=4), tuple(Slot(f"l0n{i}", 0) for i in range(4))
    answer = ask(fabric_of(2, 4), plan, placed, "l0n3")
    assert isinstance(answer, Refusal)
    assert answer.details == (
        "no node of leaf l0 is free to stand in for l0n3",
        "every pipeline of the job has lost a node, so nothing of it could stay",
    )


class TestDropped:
    """tp 2 x dp 4 on four nodes of two: a replica a node."""

    PLAN = ParallelismSpec(tp=2, dp=4)
    PLACED = whole("l0n0", "l0n1", "l0n2", "l0n3")

    def part(self, *lost: str, plan: ParallelismSpec = PLAN, placed: tuple[Slot, ...] = PLACED) -> Part:
        fabric = fabric_of(1, 4)
        room = free_room(fabric, [Holding(fabric_slots(fabric), 0.0)])
        return Part(Mesh.of(plan), PlacementSpec(), ResourcesSpec(), fabric, room, placed, frozenset(lost))

    def test_the_first_whole_replicas_stay_and_the_rest_is_given_back(self) -> None:
        found = dropped(self.part("l0n1"), 2)
        assert isinstance(found, Moved)
        assert found.placement.slots == whole("l0n0", "l0n2")
        assert (found.replicas, found.ranks, found.left) == (2, (), whole("l0n3"))
        assert {axis.axis: axis.groups for axis in found.placement.axes} == {"tp": 2, "dp": 2}

    def test_not_with_more_than_are_whole(self) -> None:
        assert dropped(self.part("l0n1", "l0n2"), 3) == "2 replicas left whole, 3 needed"

    def test_a_node_of_one_that_stays_and_one_that_goes_is_not_torn_apart(self) -> None:
        """pp 2 x dp 2 crosswise: l0n1 has the last stage of the broken replica and the first of the whole one."""
        placed = (Slot("l0n0", 0), Slot("l0n1", 0), Slot("l0n1", 1), Slot("l0n2", 0))
        plan = ParallelismSpec(pp=2, dp=2, microbatches=2)
        assert dropped(self.part("l0n0", plan=plan, placed=placed), 1) == (
            "node l0n1 has ranks of a replica that stays and of one that would go"
        )


def fabric_slots(fabric: Fabric) -> tuple[Slot, ...]:
    return tuple(sorted(fabric.slots()))
