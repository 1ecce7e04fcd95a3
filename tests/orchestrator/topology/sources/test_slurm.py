"""Slurm's topology.conf, topology.yaml and node lines, from their manual pages."""

from __future__ import annotations

import time

import pytest

from orchestrator.spec.sections import Tier
from tests.orchestrator.topology.conftest import Read, Refusal

ISLAND, LEAF, SPINE, CORE = Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE


def test_the_manual_s_tree(read: Read) -> None:
    combined = read(
        "# tree\nSwitchName=s0 Nodes=dev[0-5]\nSwitchName=s1 Nodes=dev[6-11]\nSwitchName=s2 Nodes=dev[12-17]\n"
        "SwitchName=s3 Switches=s[0-2]\n"
    )
    assert [node.name for node in combined.fabric.nodes] == [f"dev{i}" for i in range(18)]
    assert {node.name: node.domains for node in combined.fabric.nodes}["dev7"] == {LEAF: "s1", SPINE: "s3"}
    assert combined.problems == ()


def test_the_manual_s_blocks(read: Read) -> None:
    combined = read(
        "BlockName=block1 Nodes=node[1-32]\nBlockName=block2 Nodes=node[33-64]\nBlockName=block3 Nodes=node[65-96]\n"
        "BlockName=block4 Nodes=node[97-128]\nBlockSizes=30,120\n"
    )
    islands = [node.domains[ISLAND] for node in combined.fabric.nodes]
    assert [islands.count(f"block{number}") for number in (1, 2, 3, 4)] == [32, 32, 32, 32]


def test_keys_in_any_case_comments_joined_lines_and_spaces(read: Read) -> None:
    combined = read(
        'switchname = top SWITCHES=leaf[1-2]  LinkSpeed=100 # the top\nSwitchName=leaf1 \\\n  Nodes="a1,a2"\n'
        "SwitchName=leaf2 nodes=b1\n#SwitchName=leaf3 Nodes=c1\n"
    )
    assert {node.name: node.domains[LEAF] for node in combined.fabric.nodes} == {
        "a1": "leaf1",
        "a2": "leaf1",
        "b1": "leaf2",
    }


def test_what_scontrol_shows(read: Read) -> None:
    """`scontrol show topology`: a higher switch lists the nodes of the lower ones again."""
    combined = read(
        "SwitchName=s3 Level=1 LinkSpeed=1 Nodes=dev[0-11] Switches=s[0-1]\n"
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=dev[0-5]\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=dev[6-11]\n"
    )
    assert {node.domains[LEAF] for node in combined.fabric.nodes} == {"s0", "s1"}
    assert combined.problems == ()


def test_separate_trees_stay_separate(read: Read) -> None:
    combined = read("SwitchName=a Nodes=a[1-2]\nSwitchName=b Nodes=b1\nSwitchName=top Switches=b\n")
    found = {node.name: node.domains for node in combined.fabric.nodes}
    assert found["a1"] == {LEAF: "a"}
    assert found["b1"] == {LEAF: "b", SPINE: "top"}


def test_a_fourth_tier_is_named_not_dropped_in_silence(read: Read) -> None:
    combined = read(
        "SwitchName=d Switches=c\nSwitchName=c Switches=b\nSwitchName=b Switches=a\nSwitchName=a Nodes=n1\n"
    )
    assert combined.fabric.nodes[0].domains == {LEAF: "a", SPINE: "b", CORE: "c"}
    assert [
        (problem.line, "1 switch lies above the core tier (d)" in problem.message)
        for problem in combined.problems
    ] == [(1, True)]


def test_a_tree_that_is_none_is_refused_with_every_bad_line(refusal: Refusal) -> None:
    assert "switches lie below themselves: a, b" in refusal(
        "SwitchName=a Switches=b\nSwitchName=b Switches=a Nodes=n1\n"
    )
    both = refusal("SwitchName=a Nodes=n[1-\nSwitchName=b Nodes=n[5-2]\n")
    assert "line 1: " in both
    assert "line 2: " in both
    assert "names switches and no node" in refusal("SwitchName=a Switches=b\n")
    assert "the file was cut off" in refusal("SwitchName=a Nodes=n1 \\")


def test_a_node_below_two_switches(read: Read) -> None:
    combined = read("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n")
    assert combined.fabric.nodes[0].domains == {LEAF: "a"}
    assert [(problem.line, problem.message) for problem in combined.problems] == [
        (2, "node n1 is below a and below b; a counts")
    ]


def test_node_lines_give_gpus_and_state(read: Read) -> None:
    combined = read(
        "NodeName=DEFAULT Gres=gpu:h100:8(S:0-1) State=UNKNOWN\nNodeName=n[1-2] State=IDLE\nNodeName=n3 State=DOWN*\n"
        "NodeName=n4 Gres=gpu:4,shard:16 State=IDLE+DRAIN\nNodeName=cpu1 Gres= State=IDLE\n"
    )
    found = {
        node.name: (node.accelerators, node.accelerator, node.alive, node.schedulable)
        for node in combined.fabric.nodes
    }
    assert found == {
        "cpu1": (0, None, True, True),
        "n1": (8, "H100", True, True),
        "n2": (8, "H100", True, True),
        "n3": (8, "H100", False, True),
        "n4": (4, None, True, False),
    }


@pytest.mark.parametrize(
    ("state", "alive", "schedulable"),
    [
        ("UNKNOWN", True, True),
        ("IDLE*", False, True),
        ("MIXED+CLOUD+NOT_RESPONDING", False, True),
        ("IDLE+CLOUD+POWERED_DOWN", False, True),
        ("IDLE~", False, True),
        ("IDLE#", True, True),
        ("IDLE+DRAIN", True, False),
        ("MAINT", True, False),
        ("IDLE$", True, False),
        ("FUTURE", False, True),
    ],
)
def test_states(read: Read, state: str, alive: bool, schedulable: bool) -> None:
    (node,) = read(f"NodeName=n1 Gres=gpu:8 State={state}\n").fabric.nodes
    assert (node.alive, node.schedulable) == (alive, schedulable)


SHOWN = """NodeName=n1 Arch=x86_64 CoresPerSocket=48
   CPUAlloc=0 CPUEfctv=192 CPUTot=192 CPULoad=0.45
   Gres=gpu:h100:8(S:0-1)
   NodeAddr=n1 NodeHostName=n1 Version=23.11.4
   OS=Linux 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023
   State=IDLE ThreadsPerCore=2 TmpDisk=0
   Reason=fans = loud [root@2024-01-02T03:04:05]

NodeName=n2 Arch=x86_64 CoresPerSocket=48
   Gres=gpu:h100:8
   State=DOWN* ThreadsPerCore=2
"""


@pytest.mark.parametrize("one_line", [False, True])
def test_nodes_as_scontrol_shows_them(read: Read, one_line: bool) -> None:
    text = SHOWN.replace("\n   ", " ").replace("\n\n", "\n") if one_line else SHOWN
    combined = read(text)
    found = {node.name: (node.accelerators, node.accelerator, node.alive) for node in combined.fabric.nodes}
    assert found == {"n1": (8, "H100", True), "n2": (8, "H100", False)}
    assert combined.problems == ()


def test_a_switch_line_with_a_wrong_key_is_told(read: Read) -> None:
    combined = read("SwitchName=l0 Nods=n[0-3]\nSwitchName=l1 Nodes=m[0-1]\nSwitchName=s Switches=l[0-2]\n")
    assert [(problem.line, problem.message) for problem in combined.problems] == [
        (1, "switch l0 has neither Nodes nor Switches; keys there: nods"),
        (3, "switch s names l2, which no line describes: no node is known below"),
    ]


def test_topology_yaml_of_the_manual(read: Read) -> None:
    combined = read(
        "- topology: topo1\n  cluster_default: True\n  tree:\n    switches:\n    - switch: sw_root\n"
        "      children: s[1-2]\n"
        "    - switch: s1\n      nodes: node[01-02]\n    - switch: s2\n      nodes: node[03-04]\n"
        "- topology: topo2\n  cluster_default: False\n  block:\n    block_sizes:\n      - 2\n    blocks:\n"
        "    - block: b1\n      nodes: node[01-02]\n    - block: b2\n      nodes: node[03-04]\n"
        "- topology: topo3\n  cluster_default: False\n  flat: True\n"
    )
    assert {node.name: node.domains for node in combined.fabric.nodes}["node03"] == {
        ISLAND: "b2",
        LEAF: "s2",
        SPINE: "sw_root",
    }


def test_one_switch_name_in_two_topologies_is_two_switches(read: Read) -> None:
    combined = read(
        "- topology: east\n  tree: {switches: [{switch: s1, nodes: 'e[1-2]'}]}\n"
        "- topology: west\n  tree: {switches: [{switch: s1, nodes: 'w[1-2]'}]}\n"
    )
    assert {node.domains[LEAF] for node in combined.fabric.nodes} == {"east/s1", "west/s1"}


def test_topology_yaml_with_two_kinds_or_none_is_refused(refusal: Refusal) -> None:
    assert "has tree and flat; it must have one" in refusal(
        "- topology: t\n  tree: {switches: []}\n  flat: true\n"
    )
    assert "has none of tree, block" in refusal("- topology: t\n")


def test_a_config_map_of_slinky(read: Read) -> None:
    combined = read(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slurm-config}\ndata:\n  topology.conf: |\n"
        "    SwitchName=s1 Nodes=n[1-2]\n"
    )
    assert [node.domains for node in combined.fabric.nodes] == [{LEAF: "s1"}] * 2


def test_131072_gpus_in_a_few_seconds(read: Read) -> None:
    """16,384 nodes of 8 under 512 leaves, 32 spines and a core."""
    lines = ["SwitchName=core Switches=spine[0-31]"]
    lines += [f"SwitchName=spine{s} Switches=leaf[{16 * s}-{16 * s + 15}]" for s in range(32)]
    lines += [f"SwitchName=leaf{leaf} Nodes=n[{32 * leaf}-{32 * leaf + 31}]" for leaf in range(512)]
    lines += ["NodeName=n[0-16383] Gres=gpu:h100:8"]
    started = time.process_time()
    combined = read("\n".join(lines))
    assert time.process_time() - started < 5
    assert sum(node.accelerators for node in combined.fabric.nodes) == 131_072
    assert len({node.domains[LEAF] for node in combined.fabric.nodes}) == 512
