"""Faults that users of similar systems reported, as small scenarios, by the number of the row in the collection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

import pytest

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Room, free_room
from orchestrator.placement.solver import solve
from orchestrator.queue.admission import Admission, Cluster, Decision, Start, Wait
from orchestrator.queue.claims import Claim, Waiting
from orchestrator.queue.order import Shares
from orchestrator.queue.policy import QueuePolicy
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.merge import merge
from orchestrator.topology.sources.yaml_file import fabric_from_yaml


def nodes(names: Iterable[str], width: int, leaf: str | None = None, **more: str) -> list[Node]:
    """Nodes that are an island each, under one leaf."""
    wide = {Tier(tier): name for tier, name in more.items()}
    if leaf is not None:
        wide[Tier.LEAF] = leaf
    return [Node(name, width, {Tier.ISLAND: name, **wide}) for name in names]


def ask(
    fabric: Fabric, plan: ParallelismSpec, *, free: Iterable[Slot] | None = None, **rules: AxisRule
) -> Placement | Refusal:
    room = free_room(fabric, []).slots if free is None else frozenset(free)
    return solve(Mesh.of(plan), PlacementSpec(**rules), fabric, room, resources=ResourcesSpec())


def placed(answer: Placement | Refusal) -> tuple[Slot, ...]:
    assert isinstance(answer, Placement), answer
    return answer.slots


def refused(answer: Placement | Refusal) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def gangs(fabric: Fabric, room: Room, plan: ParallelismSpec, names: Iterable[str]) -> list[Decision]:
    """What a pass over the queue gives to waiting jobs of one plan."""
    size = Mesh.of(plan).size
    jobs = [Waiting(Claim(name, name, "default", 0, size, None, False, 0.0), 0.0, 0.0) for name in names]
    policy = QueuePolicy()
    admission = Admission(
        Cluster(fabric, room, (), now_s=0.0),
        Shares(policy, {}, {}),
        policy,
        lambda _, left: ask(fabric, plan, free=left.slots),
    )
    return list(admission.decisions(jobs))


def test_row_2_after_a_node_loss_one_gang_is_complete_and_the_other_holds_nothing() -> None:
    """Two gangs of 16 on four nodes of 8 lose a node that held half of each; one spare is there, one is held by
    others. Both are placed anew, from nothing."""
    fabric = Fabric(
        (*nodes(["a", "b", "c", "spare"], 8, "l0"), replace(nodes(["d"], 8, "l0")[0], alive=False))
    )
    held_by_others = {Slot("c", index) for index in range(8)}
    room = Room(free_room(fabric, []).slots - held_by_others)
    first, second = gangs(fabric, room, ParallelismSpec(tp=8, dp=2), ["first", "second"])
    assert len(placed_of(first)) == 16
    assert isinstance(second, Wait)
    assert "8 of 32 usable accelerators free, 16 needed; lost: d" in (second.sentence, *second.details)


def placed_of(decision: Decision) -> tuple[Slot, ...]:
    assert isinstance(decision, Start), decision
    return decision.placement.slots


@pytest.mark.parametrize("seed", range(10))
def test_row_4_tensor_groups_stay_on_one_node_whatever_the_order_of_the_table(seed: int) -> None:
    table = nodes(["n1", "n2"], 8)
    slots = sorted(Fabric(tuple(table)).slots())
    Random(seed).shuffle(table)
    Random(seed).shuffle(slots)
    found = placed(ask(Fabric(tuple(table)), ParallelismSpec(tp=8, dp=2), free=slots))
    assert [slot.node for slot in found] == ["n1"] * 8 + ["n2"] * 8


def test_row_6_numbers_in_names_are_numbers() -> None:
    fabric = Fabric((*nodes(["node66", "node70"], 1, "l1"), *nodes(["node7", "node8"], 1, "l0")))
    found = placed(ask(fabric, ParallelismSpec(pp=2, dp=2)))
    assert [slot.node for slot in found] == ["node7", "node8", "node66", "node70"]


def test_row_8_rank_0_is_where_the_new_placement_says() -> None:
    """Its node is gone: nothing of the old placement is in the new one."""
    fabric = Fabric(tuple(nodes(["a", "b"], 1, "l0")))
    assert placed(ask(fabric, ParallelismSpec()))[0].node == "a"
    dead = Fabric((replace(fabric.nodes[0], alive=False), fabric.nodes[1]))
    assert placed(ask(dead, ParallelismSpec()))[0].node == "b"


def test_row_10_a_gang_moves_whole_or_waits_and_is_never_split_over_racks() -> None:
    plan = ParallelismSpec(pp=4)
    gone = replace(nodes(["a3"], 1, "rack1")[0], alive=False)
    rack1, rack2 = nodes(["a0", "a1", "a2"], 1, "rack1"), nodes(["b0", "b1", "b2"], 1, "rack2")
    answer = refused(ask(Fabric((*rack1, gone, *rack2)), plan))
    assert answer.message == "leaf rack1: 3 free, 4 needed for one pipeline"
    assert answer.ever, "the failed node may come back"
    wider = [*rack2, *nodes(["b3"], 1, "rack2")]
    found = placed(ask(Fabric((*rack1, gone, *wider)), plan))
    assert [slot.node for slot in found] == ["b0", "b1", "b2", "b3"]


def test_row_12_a_required_leaf_is_never_two_leaves() -> None:
    fabric = Fabric(
        (*nodes(map("a{}".format, range(6)), 1, "A"), *nodes(map("b{}".format, range(6)), 1, "B"))
    )
    answer = refused(ask(fabric, ParallelismSpec(pp=8)))
    assert answer.message == "leaf A: 6 free, 8 needed for one pipeline"
    assert answer.changes == ("It fits now with placement.pp {tier: any} instead of leaf.",)


def test_row_14_of_two_gangs_of_a_hundred_on_a_hundred_nodes_one_gets_all_and_the_other_none() -> None:
    fabric = Fabric(tuple(nodes([f"n{i}" for i in range(100)], 1)))
    first, second = gangs(fabric, free_room(fabric, []), ParallelismSpec(dp=100), ["first", "second"])
    assert len(set(placed_of(first))) == 100
    assert isinstance(second, Wait)


def test_row_16_nodes_without_an_island_are_used_last_and_are_no_island() -> None:
    """The two without the label come first in name and natural order."""
    unknown = [Node(f"a{i}", 4, {Tier.LEAF: "l0"}) for i in range(2)]
    rack = [Node(f"b{i}", 4, {Tier.LEAF: "l0", Tier.ISLAND: "rack"}) for i in range(16)]
    fabric = Fabric((*unknown, *rack))
    assert {slot.node[0] for slot in placed(ask(fabric, ParallelismSpec(tp=8, dp=8)))} == {"b"}
    assert {slot.node for slot in placed(ask(fabric, ParallelismSpec(dp=72)))} >= {"a0", "a1"}
    answer = refused(ask(fabric, ParallelismSpec(tp=8, dp=9)))
    assert "8 free accelerators without a known island, which never matches (a0, a1)" in answer.details


def test_row_18_gangs_may_share_an_island_over_nodes_and_the_plan_says_so() -> None:
    fabric = Fabric(tuple(Node(f"n{i}", 4, {Tier.ISLAND: "nvl72", Tier.LEAF: "l0"}) for i in range(18)))
    plan = ParallelismSpec(tp=4, dp=8)
    first = ask(fabric, plan)
    second = ask(fabric, plan, free=fabric.slots() - set(placed(first)))
    assert not set(placed(first)) & set(placed(second))
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    said = "island nvl72 over 18 nodes is shared with other jobs: 32 of its 72 accelerators are taken"
    assert said in second.explanation
    assert said not in first.explanation


def test_row_20_a_tensor_group_of_eight_spans_two_nodes_of_an_island_of_eighteen() -> None:
    fabric = Fabric(tuple(Node(f"n{i}", 4, {Tier.ISLAND: "nvl72"}) for i in range(18)))
    answer = ask(fabric, ParallelismSpec(tp=8))
    assert {slot.node for slot in placed(answer)} == {"n0", "n1"}
    assert isinstance(answer, Placement)
    assert (answer.axes[0].outside, answer.axes[0].widest) == (0, Tier.ISLAND)


def test_row_22_nodes_that_are_declared_and_not_there_take_no_work_and_the_rest_does() -> None:
    declared = fabric_from_yaml(
        "nodes: [{name: 'n[0-4]', accelerators: 2, island: '{name}', leaf: l0}]", origin="topology.yaml"
    )
    observed = Fabric((Node("n0", 2), Node("n4", 2)))
    fabric = merge(declared, observed).fabric
    assert [node.name for node in fabric.nodes if not node.alive] == ["n1", "n2", "n3"]
    assert {slot.node for slot in placed(ask(fabric, ParallelismSpec(tp=2, dp=2)))} == {"n0", "n4"}


def test_row_24_two_leaves_below_one_spine_are_nearer_than_below_two() -> None:
    """Each leaf holds one of two replicas; l0 and l2 are first in order, but l2 and l3 share a spine."""
    fabric = Fabric(
        (
            *nodes(["n0"], 1, "l0", spine="s0"),
            *nodes(["n2"], 1, "l2", spine="s1"),
            *nodes(["n3"], 1, "l3", spine="s1"),
        )
    )
    assert [slot.node for slot in placed(ask(fabric, ParallelismSpec(dp=2)))] == ["n2", "n3"]


def test_row_26_a_tensor_group_avoids_the_accelerator_with_a_weak_link() -> None:
    """Seven are joined alike; accelerator 7 has a link to nobody, so it is in no island."""
    fabric = Fabric((Node("n0", 8, {Tier.LEAF: "l0"}, dict.fromkeys(range(7), "n0/nv4")),))
    found = placed(ask(fabric, ParallelismSpec(tp=4)))
    assert 7 not in {slot.index for slot in found}
    assert isinstance(ask(fabric, ParallelismSpec(tp=4, dp=2)), Refusal)
