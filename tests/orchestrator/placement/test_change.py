"""What would make a job fit."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def cluster(nodes: int = 8) -> Fabric:
    """Nodes of two, an island each, two to a leaf, four to a spine."""
    return Fabric(
        tuple(
            Node(f"n{i}", 2, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i // 2}", Tier.SPINE: f"s{i // 4}"})
            for i in range(nodes)
        )
    )


def changes(plan: ParallelismSpec, busy: Iterable[Slot] = (), **rules: AxisRule) -> tuple[str, ...]:
    fabric = cluster()
    free = fabric.slots() - set(busy)
    answer = solve(Mesh.of(plan), PlacementSpec(**rules), fabric, free, resources=ResourcesSpec())
    assert isinstance(answer, Refusal)
    return answer.changes


def test_the_next_tier_that_holds_a_pipeline_is_named() -> None:
    assert changes(ParallelismSpec(tp=2, pp=4)) == (
        "It fits now with placement.pp {tier: spine} instead of leaf.",
    )


def test_a_tensor_group_wider_than_an_island_may_go_under_a_leaf() -> None:
    assert changes(ParallelismSpec(tp=4)) == (
        "It fits now with placement.tp {tier: leaf} instead of island.",
    )


def test_fewer_replicas_are_a_divisor_of_those_asked_for() -> None:
    """Seven nodes hold seven tensor groups; four divides eight."""
    assert changes(ParallelismSpec(tp=2, dp=8), busy=[Slot("n0", 0)]) == (
        "It fits now with parallelism.dp 4 instead of 8.",
    )


def test_fewer_replicas_keep_expert_groups_whole() -> None:
    """Four replicas of two have room: eight ranks, a group of eight experts but not one of sixteen."""
    busy = [Slot("n0", 0)]
    assert changes(ParallelismSpec(tp=2, dp=8, ep=8), busy) == (
        "It fits now with parallelism.dp 4 instead of 8.",
    )
    assert changes(ParallelismSpec(tp=2, dp=8, ep=16), busy) == ()


def test_no_single_change_helps_a_job_larger_than_the_cluster_without_replicas() -> None:
    assert changes(ParallelismSpec(pp=17)) == ()


def test_every_change_that_is_named_does_make_it_fit() -> None:
    fabric = cluster()
    busy = {Slot("n1", 0), Slot("n4", 1)}
    plan = ParallelismSpec(tp=2, pp=2, dp=4)
    assert changes(plan, busy) == ("It fits now with parallelism.dp 2 instead of 4.",)
    fewer = ParallelismSpec(tp=2, pp=2, dp=2)
    answer = solve(Mesh.of(fewer), PlacementSpec(), fabric, fabric.slots() - busy, resources=ResourcesSpec())
    assert isinstance(answer, Placement)
