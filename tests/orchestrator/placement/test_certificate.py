"""The certificate: right reports pass, deliberately wrong ones are refused with the sentence that says why."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.lifecycle.reports import RankFacts
from orchestrator.placement.certificate import Certificate, certify
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import AxisRule, ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot

FABRIC = Fabric(
    tuple(
        Node(f"n{i}", 2, {Tier.ISLAND: f"i{i}", Tier.LEAF: f"l{i // 2}"}, accelerator="cpu") for i in range(5)
    )
)
"""Two leaves of two nodes of two, and a spare node under a third leaf."""
MESH = Mesh.of(ParallelismSpec(tp=2, pp=2, dp=2))
RULES = PlacementSpec()
SLOTS = tuple(Slot(f"n{rank // 2}", rank % 2) for rank in range(8))


def reports(slots: tuple[Slot, ...] = SLOTS) -> list[RankFacts]:
    """What ranks on `slots` say, device `cpu`."""
    return [
        RankFacts(
            rank=rank,
            node=slot.node,
            index=slot.index,
            pid=1000 + rank,
            device="cpu",
            labels={
                "host": slot.node,
                **{
                    tier.value: domain
                    for tier in (Tier.ISLAND, Tier.LEAF)
                    if (domain := FABRIC.domain(slot, tier))
                },
            },
        )
        for rank, slot in enumerate(slots)
    ]


def judge(facts: list[RankFacts], rules: PlacementSpec = RULES) -> Certificate:
    return certify(SLOTS, MESH, rules, FABRIC, facts)


def refused(facts: list[RankFacts], *sentences: str) -> None:
    certificate = judge(facts)
    assert not certificate.ok
    for sentence in sentences:
        assert sentence in certificate.violations


def test_right_reports_are_certified_in_any_order() -> None:
    certificate = judge(reports()[::-1])
    assert certificate.ok
    assert certificate.violations == ()
    assert [(axis.axis, axis.groups, axis.outside) for axis in certificate.axes] == [
        ("tp", 4, 0),
        ("pp", 4, 0),
        ("dp", 4, 0),
    ]


def test_certificate_is_json() -> None:
    shown = json.loads(json.dumps(judge(reports()).as_json()))
    assert shown["ok"] is True
    assert shown["axes"][0] == {
        "axis": "tp",
        "asked": "island",
        "mode": "required",
        "groups": 4,
        "widest": "island",
        "outside": 0,
    }


def test_two_ranks_swapped() -> None:
    facts = reports()
    facts[0], facts[7] = replace(facts[7], rank=0), replace(facts[0], rank=7)
    refused(
        facts,
        "rank 0 runs on node n3, its place is on n0",
        "rank 7 runs on node n0, its place is on n3",
        "tp: 2 of 4 groups not inside one island (required); the widest shares no known domain",
    )


def test_two_ranks_of_a_node_swapped() -> None:
    facts = reports()
    facts[0], facts[1] = replace(facts[0], index=1), replace(facts[1], index=0)
    refused(facts, "rank 0 uses accelerator 1 of node n0, its place is 0")


def test_a_rank_on_another_node() -> None:
    spare = replace(reports()[3], node="n4", labels={"host": "n4", "island": "i4", "leaf": "l2"})
    refused(
        [*reports()[:3], spare, *reports()[4:]],
        "rank 3 runs on node n4, its place is on n1",
        "tp: 1 of 4 groups not inside one island (required); the widest shares no known domain",
    )


def test_a_rank_missing() -> None:
    facts = reports()
    del facts[5]
    refused(facts, "1 rank did not report: 5")


def test_no_rank_at_all() -> None:
    refused([], "8 ranks did not report: 0, 1, 2, 3, 4, 5, 6, 7")


def test_a_rank_twice() -> None:
    refused([*reports(), replace(reports()[2], pid=7)], "rank 2 reported 2 times")


def test_a_rank_that_the_job_does_not_have() -> None:
    refused(
        [*reports(), replace(reports()[2], rank=8, pid=7)], "rank 8 reported, but the job has ranks 0 to 7"
    )


def test_one_process_for_two_ranks() -> None:
    facts = reports()
    facts[1] = replace(facts[1], pid=facts[0].pid)
    refused(facts, "ranks 0, 1 share process 1000 of node n0")


def test_equal_pids_on_two_nodes_are_no_fault() -> None:
    facts = reports()
    facts[2] = replace(facts[2], pid=facts[0].pid)
    assert judge(facts).ok


def test_one_device_for_two_ranks() -> None:
    facts = [replace(fact, device=f"GPU-{fact.rank}") for fact in reports()]
    assert judge(facts).ok
    facts[1] = replace(facts[1], device="GPU-0")
    refused(facts, "ranks 0, 1 share device GPU-0")


def test_one_accelerator_for_two_ranks() -> None:
    facts = reports()
    facts[1] = replace(facts[1], index=0)
    refused(facts, "ranks 0, 1 share accelerator 0 of node n0")


def test_a_host_label_that_contradicts_the_node() -> None:
    facts = reports()
    facts[0] = replace(facts[0], labels={**facts[0].labels, "host": "n9"})
    refused(facts, "rank 0 says it runs on node n0, but its node carries the label host=n9")


def test_the_labels_the_ranks_report_decide_not_the_fabric() -> None:
    """The node was moved under another leaf after it was placed: its ranks stand where they should and yet too far."""
    facts = [
        replace(fact, labels={**fact.labels, "leaf": "l9"}) if fact.node == "n1" else fact
        for fact in reports()
    ]
    refused(
        facts,
        "pp: 2 of 4 groups not under one leaf (required); the widest shares no known domain",
        "node n1 reports leaf l9, it was placed as leaf l0",
    )


def test_a_preferred_axis_outside_its_tier_is_certified_and_counted() -> None:
    facts = [
        replace(fact, labels={**fact.labels, "leaf": "l9"}) if fact.node == "n1" else fact
        for fact in reports()
    ]
    certificate = judge(facts, PlacementSpec(pp=AxisRule(tier=Tier.LEAF, mode="preferred")))
    assert certificate.ok
    assert certificate.axes[1].outside == 2


def test_a_tier_that_neither_rank_nor_fabric_knows_is_not_met() -> None:
    facts = [replace(fact, labels={}) for fact in reports()]
    assert judge(facts).ok, "the fabric of the order completes what labels do not say"
    bare = Fabric(tuple(Node(node.name, 2) for node in FABRIC.nodes))
    certificate = certify(SLOTS, MESH, RULES, bare, facts)
    assert not certificate.ok
    assert (
        "pp: 4 of 4 groups not under one leaf (required); the widest shares no known domain"
        in certificate.violations
    )


def test_islands_smaller_than_a_node_are_told_apart_by_index() -> None:
    pairs = Fabric((Node("n0", 4, {}, {0: "a", 1: "b", 2: "a", 3: "b"}),))
    mesh = Mesh.of(ParallelismSpec(tp=2))

    def answer(first: int, second: int) -> Certificate:
        slots = (Slot("n0", first), Slot("n0", second))
        facts = [
            RankFacts(rank, slot.node, slot.index, 10 + rank, "cpu", {"island": "n0"})
            for rank, slot in enumerate(slots)
        ]
        return certify(slots, mesh, RULES, pairs, facts)

    assert answer(0, 2).ok
    assert not answer(0, 1).ok


def test_an_order_of_another_size_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="2 slots for a mesh of 8 ranks"):
        certify(SLOTS[:2], MESH, RULES, FABRIC, reports())


@settings(max_examples=500, deadline=None)
@given(st.permutations(range(8)))
def test_every_rank_map_but_the_ordered_one_is_refused(order: list[int]) -> None:
    facts = [replace(fact, rank=order[fact.rank]) for fact in reports()]
    assert judge(facts).ok == (order == list(range(8)))


def test_a_solved_placement_is_certified() -> None:
    placement = solve(MESH, RULES, FABRIC, FABRIC.slots() - {Slot("n1", 0)}, resources=ResourcesSpec())
    assert not isinstance(placement, Placement)
    placement = solve(MESH, RULES, FABRIC, FABRIC.slots(), resources=ResourcesSpec())
    assert isinstance(placement, Placement)
    certificate = certify(placement.slots, MESH, RULES, FABRIC, reports(placement.slots))
    assert certificate.ok
    assert certificate.axes == placement.axes


@pytest.mark.parametrize(("mode", "ok"), [("preferred", True), ("required", False)])
def test_context_blocks_are_judged_with_their_tensor_ranks(
    mode: Literal["preferred", "required"], ok: bool
) -> None:
    """Ranks 0 to 3 are one block of 2 x 2: each tensor group has a node of its own, the block has two."""
    mesh = Mesh.of(ParallelismSpec(tp=2, cp=2, dp=2))
    rules = PlacementSpec(cp=AxisRule(tier=Tier.ISLAND, mode=mode))
    certificate = certify(SLOTS, mesh, rules, FABRIC, reports())
    assert certificate.ok is ok
    outcome = next(axis for axis in certificate.axes if axis.axis == "cp")
    assert (outcome.groups, outcome.outside, outcome.widest) == (4, 4, Tier.LEAF)
    if not ok:
        assert certificate.violations[0] == (
            "cp: 4 of 4 groups not inside one island (required); the widest shares one leaf"
        )
