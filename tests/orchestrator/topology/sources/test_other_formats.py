"""Topograph, NCCL XML, ibnetdiscover, NetQ, Ray and files that are nothing."""

from __future__ import annotations

import json

import pytest

from orchestrator.spec.sections import Tier
from tests.orchestrator.topology.conftest import Read, Refusal

ISLAND, LEAF, SPINE, CORE = Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE


def gpu(index: int, inside: str = "", sm: int = 90) -> str:
    return (
        f'<pci busid="0000:0{index}:00.0" class="0x030200"><gpu dev="{index}" sm="{sm}">{inside}</gpu></pci>'
    )


def link(index: int, count: int = 1) -> str:
    return f'<nvlink target="0000:0{index}:00.0" count="{count}"/>'


TOPOGRAPH_SHAPES = {
    "2024": "switches:\n- {name: core, switches: [l1]}\n- {name: l1, capacity_blocks: [c]}\n"
    "capacity_blocks:\n- {name: c, type: GB200, nvlink: nv1, nodes: ['n[1-2]']}\n",
    "2026-05": "switches:\n  core: {switches: [l1]}\n  l1: {nodes: ['n[1-2]']}\n"
    "nodes:\n  n1: {capacity_block_id: c, attributes: {nvlink: nv1}}\n  n2: {attributes: {nvlink: nv1}}\n"
    "capacity_blocks: [c]\n",
    "2026-06": "switches:\n  core: {switches: [l1]}\n  l1: {nodes: ['n[1-2]']}\n"
    "capacity_blocks:\n  c: {nodes: ['n[1-2]'], attributes: {nvlink: nv1}}\n  d: {}\n",
    "2026-07": "switches:\n  core: {switches: [l1]}\n  l1: {}\nblocks:\n- switch: l1\n  nodes: [n1, n2]\n"
    "  labels: {network.topology.nvidia.com/accelerator: nv1}\n",
    "2026-08": "switches:\n  core: {switches: [l1]}\nblocks:\n- switch: l1\n  nodes: ['n[1-2]']\n"
    "  annotations: {accelerator.topology.test/domain: nv1}\n",
}


@pytest.mark.parametrize("shape", TOPOGRAPH_SHAPES)
def test_topograph_models_of_every_year(shape: str, read: Read) -> None:
    combined = read(TOPOGRAPH_SHAPES[shape])
    assert {node.name: node.domains for node in combined.fabric.nodes} == {
        name: {ISLAND: "nv1", LEAF: "l1", SPINE: "core"} for name in ("n1", "n2")
    }
    assert combined.problems == ()


def test_a_model_of_blocks_alone(read: Read) -> None:
    text = "blocks:\n- nodes: ['n[1-2]']\n  annotations:\n    accelerator.topology.test/domain: nvl1\n"
    assert [node.domains for node in read(text).fabric.nodes] == [{ISLAND: "nvl1"}] * 2


def test_topograph_s_graph(read: Read) -> None:
    labels = {
        "accelerator.topograph.run/domain": "nvl-1",
        "accelerator.topograph.run/sub-domain": "nvl-1.rack-1",
    }
    instance = {"id": "I21", "network_layers": ["leaf-a", "spine-a"], "labels": labels}
    combined = read(json.dumps({"instances": [instance]}))
    assert combined.fabric.nodes[0].domains == {ISLAND: "nvl-1", LEAF: "leaf-a", SPINE: "spine-a"}


def test_a_request_with_nodes(read: Read) -> None:
    request = {
        "provider": {"name": "aws"},
        "engine": {"name": "slurm"},
        "nodes": [{"region": "r1", "instances": {"i-1": "node1", "i-2": "node2"}}],
    }
    combined = read(json.dumps(request))
    assert [(node.name, dict(node.domains)) for node in combined.fabric.nodes] == [
        ("node1", {}),
        ("node2", {}),
    ]
    assert "says nothing of switches" in combined.problems[0].message


def test_nccl_direct_links(read: Read) -> None:
    inside = [link(1, 4), link(0, 4)]
    combined = read(
        n0=f"<system><cpu numaid='-1'>{gpu(0, inside[0], 80)}{gpu(1, inside[1], 80)}</cpu></system>"
    )
    assert combined.fabric.nodes[0].domains == {ISLAND: "n0"}
    assert combined.fabric.links[ISLAND].kind == "nvlink3"


def test_nccl_hosts_of_one_rack(read: Read) -> None:
    """NCCL writes the hosts of a multi-node NVLink domain into one file."""
    switch = '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'
    cpus = "".join(
        f'<cpu host_hash="0x{host}" numaid="0">{gpu(0, switch, 100)}{gpu(1, switch, 100)}</cpu>'
        for host in ("a1", "b2")
    )
    combined = read(rack=f"<system>{cpus}</system>")
    assert [(node.name, node.accelerators) for node in combined.fabric.nodes] == [
        ("host-a1", 2),
        ("host-b2", 2),
    ]
    assert len({node.domains[ISLAND] for node in combined.fabric.nodes}) == 1
    assert combined.fabric.links[ISLAND].kind == "nvlink5"


def test_nccl_hints_of_a_cloud_pair_each_gpu_with_the_adapter_on_its_bridge(read: Read) -> None:
    """As Azure's NDv5: PCI devices without `gpu` and `nic`, two on a bridge."""
    bridges = "".join(
        f'<pci busid="ffff:ff:0{i}.0" class="0x060400"><pci busid="000{i}:00:00.0" class="0x030200"/>'
        f'<pci busid="010{i}:00:00.0" class="0x020700"/></pci>'
        for i in (1, 2)
    )
    combined = read(n0=f'<system version="1"><cpu numaid="0">{bridges}</cpu></system>')
    assert combined.fabric.nodes[0].rails == {0: ("0101:00:00.0",), 1: ("0102:00:00.0",)}
    assert "NVLinks are not in the file" in combined.problems[0].message


def test_nccl_one_sided_link(read: Read) -> None:
    combined = read(n0=f"<system><cpu>{gpu(0, link(1, 4))}{gpu(1)}</cpu></system>")
    assert any(
        "GPU 0 names 4 links to GPU 1, which names 0 back" in problem.message for problem in combined.problems
    )


def test_nccl_files_that_are_none(refusal: Refusal) -> None:
    assert "line 1: not valid XML" in refusal(f"<system><cpu>{gpu(0)}")
    assert "without a GPU" in refusal("<system><cpu/></system>")
    assert "not a NCCL topology" in refusal("<?xml version='1.0'?><html/>")
    bomb = '<!DOCTYPE l [<!ENTITY a "aaaa">]><system>&a;</system>'
    assert "document types and entities are not read" in refusal(bomb)


IB = (
    'Switch\t40 "S-0001"\t# "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 1 lmc 0\n'
    '[1]\t"H-00a1"[1](00a1)\t# "n1 mlx5_0" lid 3 4xHDR\n'
    '[2]\t"H-00a2"[1](00a2)\t# "n2 mlx5_0" lid 4 2xHDR\n'
    '[40]\t"S-0009"[1]\t# "spine" lid 9 4xHDR\n\n'
    'Switch\t40 "S-0002"\t# "leaf2" base port 0 lid 2 lmc 0\n'
    '[1]\t"H-00a3"[1](00a3)\t# "n3 HCA-1" lid 5 4xHDR\n'
    '[40]\t"S-0009"[2]\t# "spine" lid 9 4xHDR\n\n'
    'Switch\t40 "S-0009"\t# "spine" base port 0 lid 9 lmc 0\n'
    '[1]\t"S-0001"[40]\t# "leaf1" lid 1 4xHDR\n'
    '[2]\t"S-0002"[40]\t# "leaf2" lid 2 4xHDR\n\n'
    'Ca\t1 "H-00a3"\t# "n3 HCA-1"\n[1](00a3)\t"S-0002"[1]\t# lid 5 lmc 0 "leaf2" lid 2 4xHDR\n'
)


def test_ibnetdiscover(read: Read) -> None:
    combined = read(IB)
    assert {node.name: node.domains for node in combined.fabric.nodes} == {
        "n1": {LEAF: "leaf1", SPINE: "spine"},
        "n2": {LEAF: "leaf1", SPINE: "spine"},
        "n3": {LEAF: "leaf2", SPINE: "spine"},
    }
    assert [(problem.line, problem.message) for problem in combined.problems] == [
        (3, "port 2 to H-00a2 runs at 2xHDR, most others at 4xHDR: a bad cable or port")
    ]
    assert combined.fabric.links[SPINE].uplink == 25e9


def test_ibnetdiscover_that_was_cut_off_is_refused(refusal: Refusal) -> None:
    assert "2 switches are cabled and not described" not in refusal(IB[: IB.index('Switch\t40 "S-0002"')])
    assert "1 switch is cabled and not described (S-0009)" in refusal(IB[: IB.index('Switch\t40 "S-0002"')])
    assert "the file was cut off here" in refusal(IB[: IB.index("(00a2)")])
    adapter = 'Ca\t1 "H-b8e92403009ca838"\t\t# "dgx-gb200-n01-c1 HCA-1"\n'
    assert "holds no switch" in refusal(adapter)


def test_a_spine_with_a_manager_is_no_leaf(read: Read) -> None:
    text = IB.replace(
        '[1]\t"S-0001"[40]', '[3]\t"H-00f1"[1](00f1)\t# "ufm mlx5_0" lid 8 4xHDR\n[1]\t"S-0001"[40]'
    )
    found = {node.name: node.domains for node in read(text).fabric.nodes}
    assert found["n1"][LEAF] == "leaf1"
    assert found["n1"][SPINE] == found["n3"][SPINE]
    assert found["ufm"] == {LEAF: "spine", SPINE: "spine"}


def test_netq_compute_nodes(read: Read) -> None:
    rows = [
        {"Name": f"node{i}", "DomainUUID": "3fbfc98b", "GpuIDList": ["a", "b", "c", "d"], "Health": "HEALTHY"}
        for i in (1, 2)
    ]
    nodes = read(json.dumps(rows)).fabric.nodes
    assert [(node.name, node.accelerators, node.domains[ISLAND]) for node in nodes] == [
        ("node1", 4, "3fbfc98b"),
        ("node2", 4, "3fbfc98b"),
    ]


def test_ray_nodes(read: Read) -> None:
    ray_nodes = [
        {
            "NodeID": "a",
            "Alive": True,
            "Resources": {"GPU": 8.0, "CPU": 64.0},
            "Labels": {"host": "n0", "leaf": "l0"},
        },
        {"NodeID": "b", "Alive": False, "Resources": {}, "Labels": {"host": "n1", "island": "N/A"}},
    ]
    listed = [
        {
            "node_id": "a",
            "state": "ALIVE",
            "resources_total": {"GPU": 8.0},
            "labels": {"host": "n0", "leaf": "l0"},
        }
    ]
    combined = read(json.dumps(ray_nodes))
    assert [
        (node.name, node.accelerators, dict(node.domains), node.alive) for node in combined.fabric.nodes
    ] == [
        ("n0", 8, {LEAF: "l0"}, True),
        ("n1", 0, {}, False),
    ]
    assert "the label island='N/A' names nothing" in combined.problems[0].message
    assert read(json.dumps(listed)).fabric.nodes[0].domains == {LEAF: "l0"}


def test_atoll_s_own_file(read: Read) -> None:
    combined = read("nodes:\n- {name: 'n[0-1]', accelerators: 8, island: '{name}', leaf: l0}\n")
    assert [dict(node.domains) for node in combined.fabric.nodes] == [
        {ISLAND: f"n{i}", LEAF: "l0"} for i in (0, 1)
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x1f\x8b\x08\x00\xff\xfe", "is no UTF-8 text"),
        (b"a\x00b", "holds a NUL byte"),
        (b"hello, world", "is plain text; it is none of Slurm topology.conf"),
        (b"{", "not valid"),
        (b'{"instances": [{"id": "a", "network_la', "not valid JSON"),
        (b"a: b\n", "is YAML with the keys a"),
        (b"- 1\n- 2\n", "is a list of things"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_nothing_that_can_be_read(data: bytes, words: str, refusal: Refusal) -> None:
    assert words in refusal(data)


def test_one_partition_under_two_names_is_no_contradiction(read: Read) -> None:
    slurm = "SwitchName=switch.1.1 Nodes=n[1-2]\nSwitchName=switch.1.2 Nodes=n3\n"
    fabric = "nodes:\n- {name: 'n[1-2]', leaf: tor1, accelerators: 8}\n"
    fabric += "- {name: n3, leaf: tor2}\n- {name: n4, leaf: tor2}\n"
    combined = read(a=slurm, b=fabric)
    assert combined.problems == ()
    assert {node.name: node.domains[LEAF] for node in combined.fabric.nodes}["n4"] == "switch.1.2"


def test_contradictions_name_both_files(read: Read) -> None:
    slurm = "SwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\n"
    fabric = "nodes:\n- {name: n1, leaf: tor1}\n- {name: 'n[2-3]', leaf: tor2}\n"
    messages = [problem.message for problem in read(a=slurm, b=fabric).problems]
    assert "node n2: leaf s1 in a, tor2 in b; s1 counts" in messages
