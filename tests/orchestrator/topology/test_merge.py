from __future__ import annotations

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.links import Link
from orchestrator.topology.merge import merge


def one(*nodes: Node) -> Fabric:
    return Fabric(nodes)


def test_what_is_unknown_is_completed() -> None:
    declared = one(Node("n0", 0, {Tier.LEAF: "l0"}, {0: "n0/a"}))
    observed = one(Node("n0", 4, {Tier.SPINE: "s0", Tier.ISLAND: "i0"}, accelerator="H100", cpus=8.0))
    merged = merge(declared, observed)
    assert merged.conflicts == ()
    assert merged.fabric.nodes == (
        Node(
            "n0",
            4,
            {Tier.ISLAND: "i0", Tier.LEAF: "l0", Tier.SPINE: "s0"},
            {0: "n0/a"},
            accelerator="H100",
            cpus=8.0,
        ),
    )


def test_a_bandwidth_stays_with_how_it_is_known() -> None:
    """The class comes from one source, the measured number from another."""
    classed = Fabric((), {Tier.LEAF: Link("ib-ndr"), Tier.SPINE: Link("ib-ndr", 50e9)})
    probed = Fabric((), dict.fromkeys((Tier.LEAF, Tier.SPINE), Link(None, 44e9, measured=True)))
    assert merge(classed, probed).fabric.links == {
        Tier.LEAF: Link("ib-ndr", 44e9, measured=True),
        Tier.SPINE: Link("ib-ndr", 50e9),
    }


def test_what_nobody_knows_stays_unknown() -> None:
    merged = merge(one(Node("n0", 1)), one(Node("n0", 1)))
    assert merged.fabric.domain(Slot("n0", 0), Tier.LEAF) is None


def test_contradictions_are_listed_and_the_declared_value_counts() -> None:
    declared = one(Node("n10", 2, {Tier.LEAF: "l0"}), Node("n2", 2, {Tier.LEAF: "l1"}, accelerator="H100"))
    observed = one(Node("n10", 2, {Tier.LEAF: "l1"}), Node("n2", 2, {Tier.LEAF: "l1"}, accelerator="A100"))
    merged = merge(declared, observed)
    assert merged.conflicts == (
        "node n2: accelerator type H100 declared, A100 reported; H100 counts",
        "node n10: leaf l0 declared, l1 reported; l0 counts",
    )
    assert [node.name for node in merged.fabric.nodes] == ["n2", "n10"]
    assert merged.fabric.domain(Slot("n10", 0), Tier.LEAF) == "l0"
    assert merged.fabric.nodes[0].accelerator == "H100"


def test_an_accelerator_that_one_source_does_not_know_is_not_used() -> None:
    for numbers in ((8, 4), (4, 8)):
        merged = merge(one(Node("n0", numbers[0])), one(Node("n0", numbers[1])))
        assert merged.fabric.nodes[0].accelerators == 4
        assert merged.conflicts == (
            f"node n0: {numbers[0]} accelerators declared, {numbers[1]} reported; 4 count",
        )


def test_a_node_lives_only_if_every_source_says_so() -> None:
    declared = one(Node("n0", 1), Node("n1", 1, schedulable=False), Node("ghost", 1))
    observed = one(Node("n0", 1, alive=False), Node("n1", 1), Node("new", 1))
    nodes = {node.name: node for node in merge(declared, observed).fabric.nodes}
    assert not nodes["n0"].alive
    assert not nodes["n1"].schedulable
    assert not nodes["ghost"].alive, "declared and not there"
    assert nodes["new"].alive, "not declared, taken as observed"


def test_one_source_is_itself() -> None:
    fabric = one(Node("n0", 1, {Tier.LEAF: "l0"}))
    assert merge(fabric).fabric == fabric


def test_an_island_declared_for_the_whole_node_covers_observed_parts() -> None:
    declared = one(Node("n0", 2, {Tier.ISLAND: "whole"}))
    observed = one(Node("n0", 2, {}, {0: "a", 1: "b"}))
    fabric = merge(declared, observed).fabric
    assert {fabric.domain(Slot("n0", index), Tier.ISLAND) for index in range(2)} == {"whole"}
