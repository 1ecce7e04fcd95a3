"""Which path a group shares, and what is known of a fabric's links."""

from __future__ import annotations

import pytest

from orchestrator.estimate.hardware import accelerators, link_classes
from orchestrator.estimate.network import default_network, device_of, network_of
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.links import Link

A100 = accelerators()["A100-SXM-80GB"]
NVLINK, HDR = (link_classes()[name].bandwidth for name in ("nvlink3", "ib-hdr"))


def cluster(leaves: int, nodes: int, *, accelerator: str | None = "A100-80GB") -> tuple[Node, ...]:
    return tuple(
        Node(
            f"n{leaf}-{node}",
            8,
            {Tier.ISLAND: f"i{leaf}-{node}", Tier.LEAF: f"l{leaf}", Tier.SPINE: "s"},
            accelerator=accelerator,
        )
        for leaf in range(leaves)
        for node in range(nodes)
    )


def test_groups_inside_an_island_and_across() -> None:
    network = default_network(A100, 1024)
    assert network.path(((1, 8),)).bandwidth == NVLINK
    # One rank a node: its own NIC.
    assert network.path(((8, 4),)).bandwidth == HDR
    # All eight of each node: eight NICs abreast, 192 GB/s, less than NVLink.
    assert network.path(((1, 32),)).bandwidth == pytest.approx(8 * HDR)
    # Two of each node.
    assert network.path(((4, 8),)).bandwidth == pytest.approx(2 * HDR)
    assert network.link(((8, 4),)).bandwidth == HDR


def test_groups_of_two_axes() -> None:
    """cp 2 next to one another and dp 4, a node apart: two of each node, two NICs abreast."""
    network = default_network(A100, 32)
    assert network.path(((1, 2), (8, 4))).bandwidth == pytest.approx(2 * HDR)
    assert network.path(((1, 2), (2, 4))).bandwidth == NVLINK


def test_links_of_a_fabric_that_tells_none_are_the_usual_ones() -> None:
    network = network_of(Fabric(cluster(2, 4)), A100)
    assert [(hop.tier, hop.size, hop.path.kind) for hop in network.hops] == [
        (Tier.ISLAND, 8, "nvlink3"),
        (Tier.LEAF, 32, "ib-hdr"),
        (Tier.SPINE, 64, "ib-hdr"),
    ]
    assert len(network.notes) == 3
    assert "island: link unknown, taken as nvlink3, usual for A100-SXM-80GB" in network.notes


def test_what_a_fabric_tells_counts() -> None:
    links = {
        Tier.ISLAND: Link("nvlink4", 450e9),
        Tier.LEAF: Link("ib-ndr", 50e9, latency_s=3e-6),
        Tier.SPINE: Link(None, 10e9, latency_s=9e-6),
    }
    network = network_of(Fabric(cluster(2, 4), links), A100)
    island, leaf, spine = (hop.path for hop in network.hops)
    assert island.bandwidth == pytest.approx(0.81 * 450e9)
    assert (leaf.bandwidth, leaf.latency_s) == (pytest.approx(0.96 * 50e9), 3e-6)
    # Without a class the number is taken as measured.
    assert (spine.bandwidth, spine.latency_s) == (10e9, 9e-6)
    assert network.notes == ()


def test_a_measured_bandwidth_is_what_programs_get() -> None:
    links = {Tier.LEAF: Link("ib-ndr", 44e9, measured=True)}
    leaf = network_of(Fabric(cluster(2, 4), links), A100).hops[1].path
    assert (leaf.bandwidth, leaf.kind) == (44e9, "ib-ndr")


def test_an_uplink_is_shared_by_all_that_send_into_it() -> None:
    """32 accelerators of a leaf over 160 GB/s: 5 GB/s each, though each has a NIC of 24."""
    links = {Tier.SPINE: Link("ib-hdr", 25e9, uplink=160e9)}
    network = network_of(Fabric(cluster(2, 4), links), A100)
    assert network.link(((32, 2),)).bandwidth == pytest.approx(5e9)
    assert network.link(((8, 4),)).bandwidth == HDR


def test_islands_smaller_than_a_node() -> None:
    node = Node("n", 8, {}, {i: f"n/{i // 2}" for i in range(8)}, accelerator="A100-PCIE-80GB")
    network = network_of(Fabric((node,)), accelerators()["A100-PCIE-80GB"])
    assert [(hop.tier, hop.size) for hop in network.hops] == [(Tier.ISLAND, 2), (Tier.NODE, 8)]


def test_the_device_of_a_fabric() -> None:
    mixed = Fabric((*cluster(1, 3), Node("h", 8, accelerator="H100"), Node("old", 8)))
    found = device_of(mixed)
    assert found is A100
    assert device_of(mixed, "H100") is accelerators()["H100-SXM"]
    assert device_of(Fabric(cluster(1, 1, accelerator=None))) is None
