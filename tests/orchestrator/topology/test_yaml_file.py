from __future__ import annotations

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Slot
from orchestrator.topology.sources.reading import InvalidFabricError
from orchestrator.topology.sources.yaml_file import fabric_from_yaml

FILE = """
nodes:
  - name: n[9-11]
    accelerators: 8
    accelerator: H100
    island: "{name}"
    leaf: l0
    spine: s0
  - name: old
    accelerators: 4
    islands:
      a: [0, 1]
      b: [2, 3]
    schedulable: false
"""


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidFabricError) as refused:
        fabric_from_yaml(text, origin="fabric.yaml")
    assert str(refused.value).startswith("fabric.yaml: ")
    return refused.value.problems


def test_a_file_becomes_a_fabric() -> None:
    fabric = fabric_from_yaml(FILE, origin="fabric.yaml")
    assert [node.name for node in fabric.nodes] == ["n9", "n10", "n11", "old"]
    assert fabric.nodes[1].domains == {Tier.ISLAND: "n10", Tier.LEAF: "l0", Tier.SPINE: "s0"}
    assert fabric.nodes[1].accelerator == "H100"
    assert not fabric.nodes[3].schedulable
    assert len(fabric.slots()) == 28


def test_islands_inside_a_node_belong_to_that_node() -> None:
    fabric = fabric_from_yaml("nodes: [{name: 'n[0-1]', accelerators: 2, islands: {a: [0, 1]}}]", origin="f")
    islands = {fabric.domain(Slot(f"n{i}", 0), Tier.ISLAND) for i in range(2)}
    assert islands == {"n0/a", "n1/a"}


def test_leading_zeros_set_the_width() -> None:
    fabric = fabric_from_yaml("nodes: [{name: 'r[08-10]x'}]", origin="f")
    assert [node.name for node in fabric.nodes] == ["r08x", "r09x", "r10x"]


def test_all_violations_at_once() -> None:
    text = """
nodes:
  - {name: a b, accelerators: 2, islands: {x: [0, 5], y: [0]}}
  - {name: "n[3-1]"}
  - {name: c}
  - {name: c}
"""
    assert problems(text) == [
        "nodes.0.name: 'a b' is neither a node name (letters, digits, - _ .) nor a range like n[0-7]",
        "nodes.0.islands.x: accelerator 5 is not there; the node has 0 to 1",
        "nodes.0.islands.y: accelerator 0 is named twice",
        "nodes.1.name: the range n[3-1] is empty; the first number must not be larger than the last",
        "nodes.3.name: the node c is declared twice",
    ]


def test_wrong_fields_at_once() -> None:
    assert problems('nodes: [{accelerators: "2", leaf: 3, laef: l0}]\nx: 1') == [
        "nodes.0.name: is required",
        'nodes.0.accelerators: must be a whole number, not the text "2"; write it without quotes',
        "nodes.0.leaf: must be text, not 3",
        "nodes.0.laef: is not a known key",
        "x: is not a known key",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "a fabric file is a mapping with the key nodes, a list of nodes"),
        ("", "a fabric file is a mapping with the key nodes, a list of nodes"),
        ("nodes: {", "line 1, column 9: not valid YAML: expected the node content, but found '<stream end>'"),
        ("nodes: [{name: a, name: b}]", "line 1, column 19: not valid YAML: the key 'name' occurs twice in one mapping; keep one"),  # noqa: E501
        ("nodes: [{name: 'n[0-9999999]'}]", "nodes.0.name: more than 200000 nodes"),
    ],
)  # fmt: skip
def test_no_fabric_file(text: str, problem: str) -> None:
    assert problems(text) == [problem]
