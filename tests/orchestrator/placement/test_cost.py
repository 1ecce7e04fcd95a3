"""Costs by hand: formulas of docs/placement.md with small numbers."""

from __future__ import annotations

import pytest

from orchestrator.placement.demand import Demand, Pattern, Workload
from orchestrator.placement.given import cost_of
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement
from orchestrator.placement.priced import HIDDEN_SHARE, AxisCost, Cost, combined
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.links import Link

FREE = AxisRule(tier=Tier.ANY, mode="preferred")
ANYWHERE = PlacementSpec(tp=FREE, cp=FREE, ep=FREE, pp=FREE, dp=FREE)
GB = 1e9


def fabric(nodes: int, width: int, *, a_leaf: int, uplink: float | None = None) -> Fabric:
    """NVLink 400 GB/s in a node, 50 GB/s under a leaf, 20 GB/s over the spine; no latency."""
    links = {
        Tier.ISLAND: Link(None, 400 * GB, 1e-12),
        Tier.LEAF: Link(None, 50 * GB, 1e-12),
        Tier.SPINE: Link(None, 20 * GB, 1e-12, uplink),
    }
    return Fabric(
        tuple(
            Node(f"n{i}", width, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i // a_leaf}", Tier.SPINE: "s"})
            for i in range(nodes)
        ),
        links,
    )


def costs(
    where: Fabric, plan: ParallelismSpec, *demands: Demand, rules: PlacementSpec = ANYWHERE
) -> dict[str, AxisCost]:
    answer = solve(
        Mesh.of(plan),
        rules,
        where,
        where.slots(),
        resources=ResourcesSpec(),
        workload=Workload(plan, demands),
    )
    assert isinstance(answer, Placement)
    assert answer.cost is not None
    return {axis.axis: axis for axis in answer.cost.axes}


def test_a_ring_inside_an_island_takes_its_bytes_over_nvlink() -> None:
    found = costs(fabric(1, 4, a_leaf=1), ParallelismSpec(tp=4), Demand("tp", Pattern.RING, 4, 4 * GB, 0))[
        "tp"
    ]
    assert found.seconds == pytest.approx(4 / 400)
    assert found.widest is Tier.ISLAND


def test_an_even_ring_over_two_nodes_sends_a_part_outside() -> None:
    """P 4, two ranks on each node: of B bytes B 4/3 1/2 stay inside, B 4/3 1/4 go out (reduce-scatter, all-reduce)."""
    found = costs(fabric(2, 2, a_leaf=2), ParallelismSpec(dp=4), Demand("dp", Pattern.RING, 4, 3 * GB, 0))[
        "dp"
    ]
    assert dict(found.by_tier) == pytest.approx({Tier.ISLAND: 2 / 400, Tier.LEAF: 1 / 50})
    assert found.seconds == pytest.approx(2 / 400 + 1 / 50)


def test_an_uneven_ring_sends_everything_over_the_slowest_hop() -> None:
    """Three ranks on two nodes: 2 + 1."""
    found = costs(fabric(2, 2, a_leaf=2), ParallelismSpec(dp=3), Demand("dp", Pattern.RING, 3, 3 * GB, 0))[
        "dp"
    ]
    assert found.seconds == pytest.approx(3 / 50)


def test_a_flat_ring_crosses_wherever_its_order_does() -> None:
    """Gloo's rings know no stages. Four ranks on two nodes in order: two hops of all bytes cross, in reverse order of
    the middle ones all four do; by stages it were 3 GB 4/3 1/4 = 1 GB either way."""
    where, plan = fabric(2, 2, a_leaf=2), ParallelismSpec(dp=4)
    workload = Workload(plan, (Demand("dp", Pattern.FLAT_RING, 4, 3 * GB, 0),))
    in_order = [Slot("n0", 0), Slot("n0", 1), Slot("n1", 0), Slot("n1", 1)]
    (found,) = cost_of(Mesh.of(plan), workload, where, in_order).axes
    assert found.seconds == pytest.approx(3 / 50)
    assert dict(found.by_tier) == pytest.approx({Tier.LEAF: 3 / 50})
    shared = fabric(2, 2, a_leaf=1, uplink=1 * GB)
    crossed = [in_order[i] for i in (0, 2, 1, 3)]
    assert cost_of(Mesh.of(plan), workload, shared, in_order).axes[0].seconds == pytest.approx(3.0)
    assert cost_of(Mesh.of(plan), workload, shared, crossed).axes[0].seconds == pytest.approx(6.0)


def test_only_rings_on_cpus_are_flat() -> None:
    demands = (Demand("tp", Pattern.RING, 2, 1.0, 0), Demand("pp", Pattern.CHAIN, 2, 1.0, 0))
    workload = Workload(ParallelismSpec(tp=2, pp=2), demands)
    assert [demand.pattern for demand in workload.on("cpu").demands] == [Pattern.FLAT_RING, Pattern.CHAIN]
    assert workload.on("H100") is workload
    assert workload.on(None) is workload


def test_a_given_placement_costs_what_the_solver_says_of_its_own() -> None:
    where, plan = fabric(4, 2, a_leaf=2, uplink=30 * GB), ParallelismSpec(tp=2, pp=2, dp=2)
    demands = (Demand("tp", Pattern.RING, 2, 9 * GB, 8), Demand("pp", Pattern.CHAIN, 2, 2 * GB, 4))
    workload = Workload(plan, demands)
    answer = solve(
        Mesh.of(plan), ANYWHERE, where, where.slots(), resources=ResourcesSpec(), workload=workload
    )
    assert isinstance(answer, Placement)
    assert cost_of(Mesh.of(plan), workload, where, answer.slots) == answer.cost


def test_a_given_placement_has_one_slot_of_the_fabric_for_each_rank() -> None:
    where, plan = fabric(1, 2, a_leaf=1), ParallelismSpec(dp=2)
    workload = Workload(plan, (Demand("dp", Pattern.RING, 2, 1.0, 0),))
    for slots, said in (
        ([Slot("n0", 0)], "1 slots, 1 of them different, for 2 ranks"),
        ([Slot("n0", 0), Slot("n0", 0)], "2 slots, 1 of them different"),
        ([Slot("n0", 0), Slot("n7", 3)], "no slot 3 on node n7"),
    ):
        with pytest.raises(ValueError, match=said):
            cost_of(Mesh.of(plan), workload, where, slots)


def test_many_rings_share_the_uplink_of_a_leaf() -> None:
    """Four rings of two, one rank of each under each leaf, 1 GB a ring: 4 GB pass an uplink of 10 GB/s, in 0.4 s.
    A ring alone would need 1/20 s."""
    where = fabric(2, 4, a_leaf=1, uplink=10 * GB)
    demands = (Demand("tp", Pattern.RING, 4, 100 * GB, 0), Demand("dp", Pattern.RING, 2, 1 * GB, 0))
    found = costs(where, ParallelismSpec(tp=4, dp=2), *demands)["dp"]
    assert found.seconds == pytest.approx(4 / 10)
    assert found.uplink == "leaf l0"


def test_a_stage_in_the_middle_sends_both_ways() -> None:
    found = costs(fabric(3, 1, a_leaf=3), ParallelismSpec(pp=3), Demand("pp", Pattern.CHAIN, 3, 1 * GB, 0))[
        "pp"
    ]
    assert found.seconds == pytest.approx(2 / 50)


def test_an_exchange_sends_each_peer_its_part() -> None:
    """Four experts' ranks on two nodes: of 3 GB one stays inside, two go out."""
    plan = ParallelismSpec(dp=4, ep=4)
    found = costs(fabric(2, 2, a_leaf=2), plan, Demand("ep", Pattern.EXCHANGE, 4, 3 * GB, 0))["ep"]
    assert found.seconds == pytest.approx(1 / 400 + 2 / 50)


def test_messages_wait_for_the_latency_of_the_widest_tier() -> None:
    where = fabric(2, 1, a_leaf=2)
    slow = Fabric(where.nodes, {**where.links, Tier.LEAF: Link(None, 50 * GB, 1e-3)})
    found = costs(slow, ParallelismSpec(dp=2), Demand("dp", Pattern.RING, 2, 1.0, 7))
    assert found["dp"].seconds == pytest.approx(7e-3)


def test_hidden_communication_costs_little_and_what_is_longer_than_backward_its_time() -> None:
    assert combined(1.0, 2.0, 5.0) == 1.0 + HIDDEN_SHARE * 2.0
    assert combined(1.0, 7.0, 5.0) == 1.0 + 2.0 + HIDDEN_SHARE * 5.0
    axes = (
        AxisCost("tp", 1.0, (), Tier.ISLAND),
        AxisCost("dp", 7.0, (), Tier.SPINE, overlapped=True),
    )
    assert Cost(axes, 5.0).exposed_s == 3.0


@pytest.mark.parametrize(("data_gb", "pipeline_gb", "nearest"), [(10.0, 1.0, "dp"), (1.0, 10.0, "pp")])
def test_the_order_follows_the_bytes(data_gb: float, pipeline_gb: float, nearest: str) -> None:
    """Two leaves of two nodes of one: what sends more is kept under a leaf, the other crosses the spine."""
    where = fabric(4, 1, a_leaf=2, uplink=20 * GB)
    demands = (
        Demand("pp", Pattern.CHAIN, 2, pipeline_gb * GB, 0),
        Demand("dp", Pattern.RING, 2, data_gb * GB, 0),
    )
    found = costs(where, ParallelismSpec(pp=2, dp=2), *demands)
    assert found[nearest].widest is Tier.LEAF
    assert found["pp" if nearest == "dp" else "dp"].widest is Tier.SPINE


def test_an_order_given_by_the_job_counts_whatever_it_costs() -> None:
    where = fabric(4, 1, a_leaf=2, uplink=20 * GB)
    demands = (Demand("pp", Pattern.CHAIN, 2, 1 * GB, 0), Demand("dp", Pattern.RING, 2, 10 * GB, 0))
    plan = ParallelismSpec(pp=2, dp=2)
    for order, nearest in (("tp-cp-ep-dp-pp", "dp"), ("tp-cp-ep-pp-dp", "pp")):
        found = costs(where, plan, *demands, rules=ANYWHERE.model_copy(update={"order": order}))
        assert found[nearest].widest is Tier.LEAF, order


def test_expert_groups_keep_to_a_leaf_where_their_ranks_would_otherwise_lie_apart() -> None:
    """Stages in pipelines of two, experts over two replicas: the group of each stage fits under one leaf."""
    where = fabric(8, 1, a_leaf=4, uplink=20 * GB)
    plan = ParallelismSpec(pp=2, dp=4, ep=2)
    rules = ANYWHERE.model_copy(update={"ep": AxisRule(tier=Tier.LEAF)})
    demands = (Demand("ep", Pattern.EXCHANGE, 2, 1 * GB, 0), Demand("pp", Pattern.CHAIN, 2, 5 * GB, 0))
    found = costs(where, plan, *demands, rules=rules)
    assert found["ep"].widest is Tier.LEAF
    assert found["pp"].widest is Tier.LEAF
