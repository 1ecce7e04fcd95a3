"""A fabric written is the fabric that is read."""

from __future__ import annotations

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.sources.reading import InvalidFabricError
from orchestrator.topology.sources.yaml_file import fabric_from_yaml
from orchestrator.topology.write import fabric_to_yaml

FABRIC = Fabric(
    (
        Node(
            "n1",
            4,
            {Tier.LEAF: "l0", Tier.SPINE: "s", Tier.CORE: "c"},
            islands={0: "n1/a", 1: "n1/a", 2: "n1/b", 3: "n1/b"},
            accelerator="H100",
            weak_pairs=frozenset({(0, 1)}),
            partitioned=frozenset({3}),
        ),
        Node("n2", 8, {Tier.ISLAND: "rack.7"}, schedulable=False, suspect=True),
        Node("n10", 0),
    ),
    {
        Tier.ISLAND: Link("nvlink4"),
        Tier.LEAF: Link("ib-ndr", 48e9, 8e-6, 384e9),
        Tier.ANY: Link(None, 1.5e6, 0.0021, measured=True),
    },
)


def test_everything_that_the_format_holds_comes_back() -> None:
    text = fabric_to_yaml(FABRIC, notes=["measured", "two\nlines"])
    assert text.startswith("# measured\n# two\n# lines\nnodes:\n")
    assert fabric_from_yaml(text, origin="it") == FABRIC


def test_absent_nodes_are_left_out() -> None:
    assert fabric_from_yaml(
        fabric_to_yaml(Fabric((Node("n0", 1), Node("n1", 1, alive=False)))), origin="it"
    ) == Fabric((Node("n0", 1),))


def test_names_that_the_format_does_not_take_are_replaced_and_stay_apart() -> None:
    names = ["b1/r1", "b1/r2", "leaf-0", "x" * 64]
    fabric = Fabric(tuple(Node(f"n{i}", 1, {Tier.LEAF: name}) for i, name in enumerate(names)))
    read = fabric_from_yaml(fabric_to_yaml(fabric), origin="it")
    assert [node.domains[Tier.LEAF] for node in read.nodes] == ["leaf-1", "leaf-2", "leaf-0", "leaf-3"]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("links: {rack: {kind: x}}", "links.rack"),
        ("links: {leaf: {bandwidth_bytes_per_s: -1.0}}", "links.leaf.bandwidth_bytes_per_s"),
        ("links: {leaf: {speed: 1.0}}", "links.leaf.speed"),
    ],
)
def test_wrong_links_are_refused_by_their_path(part: str, said: str) -> None:
    with pytest.raises(InvalidFabricError, match=said):
        fabric_from_yaml("nodes: [{name: a}]\n" + part, origin="it")


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("weak_pairs: [[1, 0]]", r"nodes.0.weak_pairs: \[1, 0\] is no pair"),
        ("weak_pairs: [[0, 2]]", r"nodes.0.weak_pairs: \[0, 2\] is no pair"),
        ("partitioned: [2]", "nodes.0.partitioned: accelerator 2 is not there"),
    ],
)
def test_accelerators_that_are_not_there_are_refused(part: str, said: str) -> None:
    with pytest.raises(InvalidFabricError, match=said):
        fabric_from_yaml(f"nodes: [{{name: a, accelerators: 2, {part}}}]", origin="it")
