"""A5: on random fabrics the solver keeps every required rule, and finds a placement exactly when one exists.

The oracle is written apart from the solver: it numbers ranks itself, reads labels off the nodes itself, and tries slots
rank by rank.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node, Slot

MANY = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SOME = settings(MANY, max_examples=150)


def label_of(node: Node, index: int, tier: str) -> str | None:
    if tier == "node":
        return node.name
    if tier == "island" and index in node.islands:
        return node.islands[index]
    return next((value for key, value in node.domains.items() if key.value == tier), None)


def kept_together(plan: ParallelismSpec, axis: str) -> list[list[int]]:
    """Ranks the rule of `axis` keeps in one domain; rank = t + tp * (c + cp * (p + pp * d))."""
    tp, cp, pp, dp = plan.tp, plan.cp, plan.pp, plan.dp

    def rank(t: int, c: int, p: int, d: int) -> int:
        return t + tp * (c + cp * (p + pp * d))

    every = list(product(range(tp), range(cp), range(pp), range(dp)))
    if axis == "ep":  # neighbours in a stage's list, tensor ranks first, then context, then data ranks
        stages = [
            [rank(t, c, p, d) for d, c, t in product(range(dp), range(cp), range(tp))] for p in range(pp)
        ]
        return [stage[i : i + plan.ep] for stage in stages for i in range(0, len(stage), plan.ep)]
    key: dict[str, Callable[[int, int, int, int], tuple[int, ...]]] = {
        "tp": lambda t, c, p, d: (c, p, d),
        "cp": lambda t, c, p, d: (p, d),
        "pp": lambda t, c, p, d: (d,),
        "dp": lambda t, c, p, d: (t, c, p),
    }
    sets: dict[tuple[int, ...], list[int]] = {}
    for place in every:
        sets.setdefault(key[axis](*place), []).append(rank(*place))
    return list(sets.values())


def demands(plan: ParallelismSpec, rules: PlacementSpec) -> list[tuple[str, list[int]]]:
    """(tier, ranks) for every set that a required rule binds. An axis of one rank binds nothing."""
    return [
        (rule.tier.value, ranks)
        for axis, rule in (
            ("tp", rules.tp),
            ("cp", rules.cp),
            ("ep", rules.ep),
            ("pp", rules.pp),
            ("dp", rules.dp),
        )
        if rule.mode == "required" and rule.tier.value != "any" and getattr(plan, axis) > 1
        for ranks in kept_together(plan, axis)
    ]


def exists(plan: ParallelismSpec, rules: PlacementSpec, fabric: Fabric, free: frozenset[Slot]) -> bool:
    """Brute force over slots, those with equal labels tried once."""
    nodes = {node.name: node for node in fabric.nodes}
    usable = [slot for slot in free if nodes[slot.node].alive and nodes[slot.node].schedulable]
    size = plan.world_size
    tiers = [tier.value for tier in Tier if tier.value != "any"]
    label = {slot: tuple(label_of(nodes[slot.node], slot.index, tier) for tier in tiers) for slot in usable}
    binding: list[list[tuple[int, list[int]]]] = [[] for _ in range(size)]
    for tier, ranks in demands(plan, rules):
        for rank in ranks:
            binding[rank].append((tiers.index(tier), [r for r in ranks if r < rank]))

    def place(chosen: list[Slot], left: list[Slot]) -> bool:
        rank = len(chosen)
        if rank == size:
            return True
        for labels in {label[slot] for slot in left}:
            if any(labels[tier] is None for tier, _ in binding[rank]) or any(
                label[chosen[other]][tier] != labels[tier]
                for tier, others in binding[rank]
                for other in others
            ):
                continue
            slot = next(slot for slot in left if label[slot] == labels)
            if place([*chosen, slot], [other for other in left if other != slot]):
                return True
        return False

    kinds = {nodes[slot.node].accelerator for slot in usable}
    return any(place([], [slot for slot in usable if nodes[slot.node].accelerator == kind]) for kind in kinds)


def check(
    placement: Placement, plan: ParallelismSpec, rules: PlacementSpec, fabric: Fabric, free: frozenset[Slot]
) -> None:
    nodes = {node.name: node for node in fabric.nodes}
    slots = placement.slots
    assert len(slots) == len(set(slots)) == plan.world_size
    assert set(slots) <= free
    assert all(nodes[s.node].alive and nodes[s.node].schedulable for s in slots)
    assert len({nodes[s.node].accelerator for s in slots}) == 1
    for tier, ranks in demands(plan, rules):
        found = {label_of(nodes[slots[r].node], slots[r].index, tier) for r in ranks}
        assert len(found) == 1, (tier, ranks)
        assert None not in found, (tier, ranks)
    for outcome in placement.axes:
        assert outcome.mode == "preferred" or outcome.outside == 0


plans = st.sampled_from(
    [
        ParallelismSpec(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep)
        for tp in (1, 2, 3, 4)
        for cp in (1, 2, 3)
        for pp in (1, 2, 3)
        for dp in (1, 2, 3, 4)
        for ep in (1, 2, 3, 4)
        if tp * cp * pp * dp <= 6 and (tp * cp * dp) % ep == 0
    ]
)
rule = st.builds(
    AxisRule, tier=st.sampled_from(Tier), mode=st.sampled_from(["required", "required", "preferred"])
)
usual = PlacementSpec()
rule_sets = st.one_of(st.just(usual), st.builds(PlacementSpec, tp=rule, cp=rule, ep=rule, pp=rule, dp=rule))


@st.composite
def odd_fabrics(draw: st.DrawFn, kinds: tuple[str | None, ...] = ("cpu",)) -> tuple[Fabric, frozenset[Slot]]:
    """Any labels on any node, nested or not, known or not; islands inside nodes or across them."""
    nodes = []
    for number in range(draw(st.integers(1, 4))):
        count = draw(st.integers(0, 3))
        label = st.sampled_from(["x", "x", "y", "z", None])
        domains = {tier: value for tier in SWITCH_TIERS if (value := draw(label)) is not None}
        islands = {
            i: draw(st.sampled_from(["x", "y", "w"])) for i in range(count) if draw(st.integers(0, 3)) == 0
        }
        working = draw(st.integers(0, 9))
        nodes.append(
            Node(
                f"n{number}",
                count,
                domains,
                islands,
                accelerator=draw(st.sampled_from(kinds)),
                alive=working != 0 or count == 0,
                schedulable=working != 1,
            )
        )
    fabric = Fabric(tuple(nodes))
    busy = draw(st.sets(st.sampled_from(sorted(fabric.slots())), max_size=3)) if fabric.slots() else set()
    return fabric, fabric.slots() - busy


@st.composite
def crossing_fabrics(draw: st.DrawFn) -> tuple[Fabric, frozenset[Slot]]:
    """Nodes of one or two, every tier known, domains of the tiers overlapping without any nesting."""
    nodes = [
        Node(
            f"n{number}",
            draw(st.integers(1, 2)),
            {tier: draw(st.sampled_from(["x", "y"])) for tier in SWITCH_TIERS},
        )
        for number in range(draw(st.integers(2, 6)))
    ]
    fabric = Fabric(tuple(nodes))
    return fabric, fabric.slots()


@st.composite
def clean_fabrics(draw: st.DrawFn) -> tuple[Fabric, frozenset[Slot]]:
    """Spine > leaf > node, every node an island, or two islands, or two nodes one island."""
    shape = draw(st.sampled_from(["island is node", "islands in node", "island over nodes"]))
    width = draw(st.sampled_from([2, 4, 8]))
    nodes = []
    for number in range(draw(st.integers(1, 12))):
        domains = {Tier.LEAF: f"l{number // 3}", Tier.SPINE: f"s{number // 6}"}
        islands = {}
        if shape == "islands in node":
            islands = {i: f"n{number}-{i * 2 // width}" for i in range(width)}
        else:
            domains[Tier.ISLAND] = f"i{number // 2 if shape == 'island over nodes' else number}"
        nodes.append(Node(f"n{number}", width, domains, islands, accelerator="H100"))
    fabric = Fabric(tuple(nodes))
    busy = draw(st.sets(st.sampled_from(sorted(fabric.slots())), max_size=len(fabric.slots()) // 3))
    return fabric, fabric.slots() - busy


@MANY
@given(odd_fabrics(), plans, rule_sets)
def test_finds_a_placement_exactly_when_one_exists(
    cluster: tuple[Fabric, frozenset[Slot]], plan: ParallelismSpec, rules: PlacementSpec
) -> None:
    fabric, free = cluster
    answer = solve(Mesh.of(plan), rules, fabric, free, resources=ResourcesSpec())
    event(type(answer).__name__)
    assert isinstance(answer, Placement) == exists(plan, rules, fabric, free)
    if isinstance(answer, Placement):
        check(answer, plan, rules, fabric, free)


@MANY
@given(
    crossing_fabrics(),
    plans,
    st.builds(PlacementSpec, tp=rule, cp=rule, pp=rule, dp=rule.filter(lambda r: r.mode == "required")),
)
def test_finds_a_placement_when_dp_rules_cut_across_the_others(
    cluster: tuple[Fabric, frozenset[Slot]], plan: ParallelismSpec, rules: PlacementSpec
) -> None:
    fabric, free = cluster
    answer = solve(Mesh.of(plan), rules, fabric, free, resources=ResourcesSpec())
    event(type(answer).__name__)
    assert isinstance(answer, Placement) == exists(plan, rules, fabric, free)


@SOME
@given(odd_fabrics(kinds=("a", "b", None)), plans, rule_sets)
def test_never_mixes_accelerator_types(
    cluster: tuple[Fabric, frozenset[Slot]], plan: ParallelismSpec, rules: PlacementSpec
) -> None:
    fabric, free = cluster
    answer = solve(Mesh.of(plan), rules, fabric, free, resources=ResourcesSpec())
    assert isinstance(answer, Placement) == exists(plan, rules, fabric, free)
    if isinstance(answer, Placement):
        check(answer, plan, rules, fabric, free)


@MANY
@given(
    clean_fabrics(),
    st.builds(ParallelismSpec, tp=st.sampled_from([1, 2, 4, 8]), pp=st.integers(1, 4), dp=st.integers(1, 4)),
)
def test_tp_groups_in_one_island_and_pipelines_under_one_leaf(
    cluster: tuple[Fabric, frozenset[Slot]], plan: ParallelismSpec
) -> None:
    fabric, free = cluster
    answer = solve(Mesh.of(plan), PlacementSpec(), fabric, free, resources=ResourcesSpec())
    event(type(answer).__name__)
    if isinstance(answer, Refusal):
        assert answer.message
        return
    check(answer, plan, PlacementSpec(), fabric, free)


@SOME
@given(odd_fabrics(), plans, rule_sets)
def test_ever_tells_whether_the_empty_fabric_would_do(
    cluster: tuple[Fabric, frozenset[Slot]], plan: ParallelismSpec, rules: PlacementSpec
) -> None:
    fabric, free = cluster
    answer = solve(Mesh.of(plan), rules, fabric, free, resources=ResourcesSpec())
    if isinstance(answer, Placement):
        return
    restored = Fabric(
        tuple(Node(n.name, n.accelerators, n.domains, n.islands, n.accelerator) for n in fabric.nodes)
    )
    event(f"ever={answer.ever}")
    assert answer.ever == exists(plan, rules, restored, restored.slots())


@SOME
@given(odd_fabrics(), plans, rule_sets, st.randoms())
def test_same_question_same_answer_whatever_the_order_of_nodes(
    cluster: tuple[Fabric, frozenset[Slot]], plan: ParallelismSpec, rules: PlacementSpec, random: object
) -> None:
    fabric, free = cluster
    shuffled = list(fabric.nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = solve(Mesh.of(plan), rules, fabric, free, resources=ResourcesSpec())
    assert first == solve(Mesh.of(plan), rules, Fabric(tuple(shuffled)), free, resources=ResourcesSpec())


@pytest.mark.parametrize("tier", ["island", "leaf", "spine", "core"])
def test_the_oracle_itself_refuses_unknown_labels(tier: str) -> None:
    fabric = Fabric((Node("n0", 1, accelerator="cpu"), Node("n1", 1, accelerator="cpu")))
    rules = PlacementSpec(tp=AxisRule(tier=Tier(tier)))
    assert not exists(ParallelismSpec(tp=2), rules, fabric, fabric.slots())
