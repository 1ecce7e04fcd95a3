"""What the solver chooses among placements that keep the rules, and what it says when there is none."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def cluster(
    leaves: int, nodes: int, width: int, *, spines: int = 1, accelerator: str | None = "H100"
) -> Fabric:
    """`leaves` leaves of `nodes` nodes of `width` accelerators; every node is an island."""
    return Fabric(
        tuple(
            Node(
                f"n{leaf * nodes + node}",
                width,
                {
                    Tier.ISLAND: f"i{leaf * nodes + node}",
                    Tier.LEAF: f"l{leaf}",
                    Tier.SPINE: f"s{leaf * spines // leaves}",
                },
                accelerator=accelerator,
            )
            for leaf in range(leaves)
            for node in range(nodes)
        )
    )


def slots(node: str, *indexes: int) -> set[Slot]:
    return {Slot(node, index) for index in indexes}


def ask(
    fabric: Fabric,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    busy: Iterable[Slot] = (),
    rules: PlacementSpec | None = None,
    accelerator: str | None = None,
) -> Placement | Refusal:
    return solve(
        Mesh.of(ParallelismSpec(tp=tp, pp=pp, dp=dp)),
        rules or PlacementSpec(),
        fabric,
        fabric.slots() - set(busy),
        resources=ResourcesSpec(accelerator=accelerator),
    )


def placed(answer: Placement | Refusal) -> list[tuple[str, int]]:
    assert isinstance(answer, Placement), answer
    return [(slot.node, slot.index) for slot in answer.slots]


def refused(answer: Placement | Refusal) -> Refusal:
    assert isinstance(answer, Refusal), answer
    return answer


def test_the_demo_fills_two_leaves_in_rank_order() -> None:
    answer = ask(cluster(2, 2, 2), tp=2, pp=2, dp=2)
    assert placed(answer) == [(f"n{node}", index) for node in range(4) for index in range(2)]


def test_nodes_are_taken_in_natural_order() -> None:
    names = ["n10", "n2", "n1"]
    fabric = Fabric(tuple(Node(name, 1, {Tier.LEAF: "l0"}, accelerator="cpu") for name in names))
    assert placed(ask(fabric, dp=2)) == [("n1", 0), ("n2", 0)]


def test_a_broken_island_serves_before_a_whole_one() -> None:
    fabric = cluster(1, 3, 4)
    assert placed(ask(fabric, tp=2, busy=slots("n1", 0))) == [("n1", 1), ("n1", 2)]


def test_a_broken_island_in_the_larger_leaf_serves_before_a_whole_one_in_a_smaller() -> None:
    """Leaf l0 has less room left, but only a whole island; breaking it would cost a later job of four."""
    fabric = cluster(2, 2, 4)
    answer = ask(fabric, tp=2, busy=slots("n0", 0, 1, 2, 3) | slots("n2", 0))
    assert placed(answer) == [("n2", 1), ("n2", 2)]


def test_a_broken_island_serves_even_when_it_leaves_more_over() -> None:
    fabric = Fabric(tuple(Node(f"n{i}", width, {Tier.ISLAND: f"i{i}"}) for i, width in enumerate((4, 16))))
    assert placed(ask(fabric, tp=2, busy=slots("n1", 0))) == [("n1", 1), ("n1", 2)]


def test_a_whole_island_is_taken_when_it_is_used_up() -> None:
    assert placed(ask(cluster(1, 2, 4), tp=4, busy=slots("n0", 0))) == [("n1", i) for i in range(4)]


def test_a_broken_leaf_serves_before_a_whole_one() -> None:
    fabric = cluster(2, 4, 2)
    answer = ask(fabric, tp=2, pp=2, busy=slots("n4", 0, 1))
    assert {node for node, _ in placed(answer)} <= {"n5", "n6", "n7"}


def test_a_job_stays_under_as_few_leaves_and_spines_as_hold_it() -> None:
    fabric = cluster(4, 2, 2, spines=2)
    answer = ask(fabric, tp=2, pp=2, dp=2, busy=slots("n0", 0, 1))
    assert {node for node, _ in placed(answer)} == {"n4", "n5", "n6", "n7"}, (
        "spine s1 is the one with two pipelines"
    )


def test_tensor_groups_keep_to_one_node_of_an_island_over_nodes() -> None:
    fabric = Fabric(
        tuple(Node(f"n{i}", 4, {Tier.ISLAND: "rack", Tier.LEAF: "l0"}, accelerator="GB300") for i in range(3))
    )
    answer = placed(ask(fabric, tp=2, dp=3, busy=slots("n0", 0) | slots("n1", 0)))
    assert all(answer[rank][0] == answer[rank + 1][0] for rank in (0, 2, 4))


def test_islands_over_nodes_hold_groups_wider_than_a_node() -> None:
    fabric = Fabric(
        tuple(Node(f"n{i}", 4, {Tier.ISLAND: f"rack{i // 2}"}, accelerator="GB300") for i in range(4))
    )
    assert {node for node, _ in placed(ask(fabric, tp=8, busy=slots("n0", 0)))} == {"n2", "n3"}


def test_islands_inside_a_node_split_tensor_groups() -> None:
    pairs = {0: "a", 1: "b", 2: "a", 3: "b"}
    fabric = Fabric((Node("n0", 4, {}, pairs, accelerator="A100"),))
    assert placed(ask(fabric, tp=2, dp=2)) == [("n0", 0), ("n0", 2), ("n0", 1), ("n0", 3)]


def test_an_unknown_tier_never_matches() -> None:
    fabric = Fabric((Node("n0", 2, accelerator="cpu"), Node("n1", 2, accelerator="cpu")))
    answer = refused(ask(fabric, tp=2))
    assert answer.message == (
        "4 free accelerators without a known island, which never matches (n0, n1); "
        "4 of 4 usable accelerators free, 2 needed"
    )
    assert not answer.ever


def test_one_rank_needs_no_label() -> None:
    assert placed(ask(Fabric((Node("n0", 1),)))) == [("n0", 0)]


def test_dead_and_cordoned_nodes_are_left_out() -> None:
    nodes = cluster(1, 3, 1).nodes
    fabric = Fabric(
        (
            Node(nodes[0].name, 1, nodes[0].domains, accelerator="H100", alive=False),
            Node(nodes[1].name, 1, nodes[1].domains, accelerator="H100", schedulable=False),
            nodes[2],
        )
    )
    assert placed(ask(fabric)) == [("n2", 0)]
    answer = refused(ask(fabric, dp=2))
    assert answer.message == "1 of 1 usable accelerator free, 2 needed; lost: n0; cordoned: n1"
    assert answer.ever, "the dead node may come back"


@pytest.mark.parametrize(("dp", "ever"), [(4, True), (5, False)])
def test_a_dead_node_whose_size_is_forgotten_may_come_back_as_large_as_others(dp: int, ever: bool) -> None:
    fabric = Fabric((Node("n0", 2, accelerator="cpu"), Node("n1", 0, accelerator="cpu", alive=False)))
    assert refused(ask(fabric, dp=dp)).ever is ever


def test_slots_that_the_fabric_does_not_have_are_not_used() -> None:
    fabric = cluster(1, 1, 1)
    answer = solve(
        Mesh.of(ParallelismSpec(dp=2)),
        PlacementSpec(),
        fabric,
        {Slot("n0", 0), Slot("n0", 1), Slot("gone", 0)},
        resources=ResourcesSpec(),
    )
    assert not refused(answer).ever


def test_types_are_not_mixed() -> None:
    fabric = Fabric((Node("n0", 2, accelerator="A100"), Node("n1", 2, accelerator="H100")))
    assert placed(ask(fabric, dp=2, busy=slots("n0", 0))) == [("n1", 0), ("n1", 1)]
    answer = refused(ask(fabric, dp=3))
    assert answer.message == "4 of 4 usable accelerators free, 3 needed; a job does not mix accelerator types"


def test_the_asked_type_alone_is_used() -> None:
    fabric = Fabric((Node("n0", 2, accelerator="A100"), Node("n1", 2, accelerator="H100")))
    assert placed(ask(fabric, accelerator="H100")) == [("n1", 0)]
    answer = refused(ask(fabric, accelerator="B200"))
    assert answer.message == "no node has accelerators of type B200; there are: A100, H100"
    assert not answer.ever


def test_refusal_names_the_nearest_leaf_first() -> None:
    fabric = cluster(3, 2, 2)
    busy = slots("n0", 0, 1) | slots("n2", 0, 1) | slots("n3", 0)
    answer = refused(ask(fabric, tp=2, pp=2, dp=2, busy=busy))
    assert answer.message == "leaf l0: 2 free, 4 needed for one pipeline; 1 of 2 pipelines fits"
    assert answer.details == (
        "leaf l0: 2 free, 4 needed for one pipeline",
        "leaf l1: 1 free, 4 needed for one pipeline",
        "leaf l2: 4 free hold 1 pipeline, 4 more needed for another",
        "7 of 12 usable accelerators free, 8 needed",
    )
    assert answer.ever


def test_refusal_says_when_islands_are_what_is_missing() -> None:
    answer = refused(ask(cluster(1, 4, 2), tp=2, pp=2, busy=[Slot(f"n{i}", 0) for i in range(4)]))
    assert answer.message == (
        "leaf l0: 4 free, but only 0 of the 2 groups of 2 that one pipeline needs fit in one island each "
        "(free by island: i0: 1, i1: 1, i2: 1, i3: 1)"
    )


def test_refusal_of_a_group_larger_than_any_island_is_for_ever() -> None:
    answer = refused(ask(cluster(2, 2, 4), tp=8))
    assert answer.message == "island i0: 4 free, 8 needed for one tensor group"
    assert not answer.ever


def test_refusal_of_a_pipeline_larger_than_any_leaf_is_for_ever() -> None:
    answer = refused(ask(cluster(2, 2, 2), tp=2, pp=4))
    assert answer.message == "leaf l0: 4 free, 8 needed for one pipeline"
    assert not answer.ever


def test_refusal_of_a_required_dp_tier() -> None:
    rules = PlacementSpec(dp=AxisRule(tier=Tier.LEAF))
    answer = refused(ask(cluster(2, 2, 2), tp=2, pp=2, dp=2, rules=rules))
    assert answer.message == "leaf l0: 4 free, 8 needed for one job"


def test_details_of_a_large_cluster_are_cut() -> None:
    answer = refused(ask(cluster(50, 1, 1), pp=2, dp=1))
    assert len(answer.details) == 22
    assert answer.details[20] == "and 30 leaves more, none nearer"


PREFERRED = PlacementSpec(pp=AxisRule(tier=Tier.LEAF, mode="preferred"))


def test_preferred_holds_where_it_can_and_says_by_how_much_it_fails() -> None:
    """Three leaves of three nodes hold a pipeline of two stages each, the third nodes share the rest."""
    answer = ask(cluster(4, 3, 2, spines=2), tp=2, pp=2, dp=6, rules=PREFERRED)
    assert isinstance(answer, Placement)
    pp = next(axis for axis in answer.axes if axis.axis == "pp")
    assert (pp.groups, pp.outside, pp.widest) == (12, 4, Tier.SPINE)
    assert (
        "pp: 4 of 12 groups not under one leaf (preferred); the widest shares one spine" in answer.explanation
    )


def test_preferred_is_met_whenever_required_would_be() -> None:
    fabric = cluster(2, 3, 2)
    answer = ask(fabric, tp=2, pp=2, dp=2, rules=PREFERRED)
    assert isinstance(answer, Placement)
    assert all(axis.outside == 0 for axis in answer.axes)


def test_preferred_tensor_groups_leave_whole_ones_whole() -> None:
    rules = PlacementSpec(tp=AxisRule(tier=Tier.ISLAND, mode="preferred"))
    answer = ask(cluster(1, 3, 3), tp=2, dp=4, rules=rules)
    assert isinstance(answer, Placement)
    tp = answer.axes[0]
    assert (tp.groups, tp.outside, tp.widest) == (4, 1, Tier.LEAF)


def test_preferred_dp_stays_near_where_it_can() -> None:
    rules = PlacementSpec(dp=AxisRule(tier=Tier.LEAF, mode="preferred"))
    answer = ask(cluster(2, 4, 2), tp=2, pp=2, dp=2, rules=rules, busy=slots("n0", 0))
    assert isinstance(answer, Placement)
    assert {slot.node for slot in answer.slots} == {"n4", "n5", "n6", "n7"}
    assert answer.axes[2].outside == 0


@pytest.mark.parametrize("pp_mode", ["required", "preferred"])
def test_dp_under_a_leaf_and_pp_across_is_found(pp_mode: str) -> None:
    """The mapping that is faster for a DP-heavy step: stages in leaves, pipelines over the spine."""
    rules = PlacementSpec(
        pp=AxisRule.model_validate({"tier": "spine", "mode": pp_mode}), dp=AxisRule(tier=Tier.LEAF)
    )
    answer = ask(cluster(2, 2, 2), tp=2, pp=2, dp=2, rules=rules)
    assert isinstance(answer, Placement)
    leaf = {f"n{i}": i // 2 for i in range(4)}
    stages = [{leaf[answer.slots[t + 2 * (p + 2 * d)].node] for t in (0, 1) for d in (0, 1)} for p in (0, 1)]
    assert sorted(map(list, stages)) == [[0], [1]]


def test_labels_that_cut_across_one_another_are_searched() -> None:
    """Leaves a, b and spines x, y overlap in one slot each. Pipelines under leaves, data groups under spines: possible,
    though neither does all of the job fit under one spine nor any stage with its replicas under one leaf."""
    fabric = Fabric(
        tuple(
            Node(f"n{i}", 1, {Tier.LEAF: leaf, Tier.SPINE: spine})
            for i, (leaf, spine) in enumerate((("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")))
        )
    )
    rules = PlacementSpec(dp=AxisRule(tier=Tier.SPINE))
    assert placed(ask(fabric, pp=2, dp=2, rules=rules)) == [("n0", 0), ("n1", 0), ("n2", 0), ("n3", 0)]


def test_sixteen_thousand_accelerators() -> None:
    """Size, not speed: the whole of a large fabric in one job, and one node too few for it."""
    fabric = cluster(128, 16, 8, spines=16)
    answer = ask(fabric, tp=8, pp=8, dp=256)
    assert len(placed(answer)) == 16384
    assert refused(ask(fabric, tp=8, pp=8, dp=256, busy=slots("n7", 3))).message == (
        "leaf l0: 127 free hold 1 pipeline, 1 more needed for another; 255 of 256 pipelines fit"
    )


@pytest.mark.parametrize(("width", "outside"), [(4, 0), (2, 2)])
def test_context_blocks_are_kept_in_an_island_where_one_is_large_enough(width: int, outside: int) -> None:
    fabric = cluster(1, 8 // width, width)
    mesh = Mesh.of(ParallelismSpec(tp=2, cp=2, dp=2))
    answer = solve(mesh, PlacementSpec(), fabric, fabric.slots(), resources=ResourcesSpec())
    assert isinstance(answer, Placement)
    axes = {outcome.axis: outcome for outcome in answer.axes}
    assert (axes["tp"].groups, axes["tp"].outside) == (4, 0)
    # Two blocks of 2 x 2 ranks hold two context groups each; one outside takes its two with it.
    assert (axes["cp"].groups, axes["cp"].outside) == (4, 2 * outside)


def test_a_required_context_block_that_fits_no_island_is_refused_by_name() -> None:
    fabric = cluster(1, 4, 2)
    rules = PlacementSpec(cp=AxisRule(tier=Tier.ISLAND))
    mesh = Mesh.of(ParallelismSpec(tp=2, cp=2))
    answer = solve(mesh, rules, fabric, fabric.slots(), resources=ResourcesSpec())
    assert isinstance(answer, Refusal)
    assert answer.message == "island i0: 2 free, 4 needed for one context block"
    assert not answer.ever
