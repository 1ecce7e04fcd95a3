"""Faults that users of similar systems reported (rows of field-faults.md), as far as reading a topology makes them."""

from __future__ import annotations

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Slot
from tests.orchestrator.topology.conftest import Read

ISLAND, LEAF, SPINE, CORE = Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE
CLUSTER = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31"


def kubernetes(nodes: dict[str, dict[str, str]], gpus: int = 4) -> str:
    """`kubectl get nodes -o yaml` of nodes with these labels."""
    items = []
    for name, labels in nodes.items():
        text = "".join(f"\n      {key}: '{value}'" for key, value in labels.items())
        items.append(
            f"- apiVersion: v1\n  kind: Node\n  metadata:\n    name: {name}\n    labels: {text or '{}'}\n"
            f"  status:\n    capacity: {{nvidia.com/gpu: '{gpus}'}}"
        )
    return "apiVersion: v1\nkind: List\nitems:\n" + "\n".join(items)


def test_row_6_names_are_ordered_as_people_count(read: Read) -> None:
    combined = read("SwitchName=a Nodes=node[7-8]\nSwitchName=b Nodes=node66,node70\n")
    assert [node.name for node in combined.fabric.nodes] == ["node7", "node8", "node66", "node70"]
    leaf_of = {node.name: node.domains[LEAF] for node in combined.fabric.nodes}
    assert leaf_of == {"node7": "a", "node8": "a", "node66": "b", "node70": "b"}


def test_row_16_nodes_without_a_label_are_no_island_of_their_own(read: Read) -> None:
    nodes = {f"n{i}": {"nvidia.com/gpu.clique": f"{CLUSTER}.1"} for i in range(16)} | {"n16": {}, "n17": {}}
    combined = read(kubernetes(nodes))
    islands = {node.name: node.domains.get(ISLAND) for node in combined.fabric.nodes}
    assert islands == {f"n{i}": f"{CLUSTER}.1" if i < 16 else None for i in range(18)}
    assert combined.fabric.domain(Slot("n16", 0), ISLAND) is None
    assert any("n16, n17" in problem.message and "island" in problem.message for problem in combined.problems)


def test_row_16_a_clique_that_stands_for_nothing_joins_nobody(read: Read) -> None:
    for nothing in ("00000000-0000-0000-0000-000000000000.0", "N/A", "0", "N/A.0", ".0", "none", "32766", ""):
        combined = read(kubernetes({name: {"nvidia.com/gpu.clique": nothing} for name in ("a1", "b1")}))
        assert [node.domains for node in combined.fabric.nodes] == [{}, {}], nothing
        assert any("a1, b1" in problem.message for problem in combined.problems), nothing


def test_row_20_an_island_of_18_nodes(read: Read) -> None:
    nodes = {f"t{i}": {"nvidia.com/gpu.clique": f"{CLUSTER}.1"} for i in range(18)}
    fabric = read(kubernetes(nodes, gpus=4)).fabric
    islands = {fabric.domain(slot, ISLAND) for slot in fabric.slots()}
    assert len(fabric.slots()) == 72
    assert islands == {f"{CLUSTER}.1"}


def test_row_20_one_clique_number_in_two_racks_is_two_islands(read: Read) -> None:
    other = "1" + CLUSTER[1:]
    combined = read(
        kubernetes(
            {"a": {"nvidia.com/gpu.clique": f"{CLUSTER}.1"}, "b": {"nvidia.com/gpu.clique": f"{other}.1"}}
        )
    )
    assert len({node.domains[ISLAND] for node in combined.fabric.nodes}) == 2


def test_row_22_hosts_that_are_not_there_are_named_and_the_rest_is_used(read: Read) -> None:
    topology = "- topology: main\n  tree:\n    switches:\n    - {switch: s1, nodes: 'n[1-5]'}\n"
    there = kubernetes({"n1": {}, "n2": {}, "stranger": {}}, gpus=8)
    combined = read(**{"topology.yaml": topology, "nodes.yaml": there})
    alive = {node.name: node.alive for node in combined.fabric.nodes}
    assert alive == {"n1": True, "n2": True, "n3": False, "n4": False, "n5": False, "stranger": True}
    messages = [(problem.file, problem.message) for problem in combined.problems]
    assert any(
        file == "topology.yaml" and "absent and given no work: n3, n4, n5" in text for file, text in messages
    )
    assert any(
        file == "nodes.yaml" and "in no topology file, so placed last: stranger" in text
        for file, text in messages
    )


def test_row_24_no_middle_tier_is_dropped(read: Read) -> None:
    conf = (
        "NodeName=a Gres=gpu:8 Topology=default:root:spine1:leaf1\n"
        "NodeName=b Gres=gpu:8 Topology=default:root:spine1:leaf2\n"
        "NodeName=c Gres=gpu:8 Topology=default:root:spine2:leaf3\n"
    )
    labels = {
        name: {
            "topology.nebius.com/tier-1": f"leaf{leaf}",
            "topology.nebius.com/tier-2": f"spine{spine}",
            "topology.nebius.com/gpu-cluster-id": "root",
        }
        for name, leaf, spine in (("a", 1, 1), ("b", 2, 1), ("c", 3, 2))
    }
    for text in (conf, kubernetes(labels, gpus=8)):
        fabric = read(text).fabric
        found = {node.name: node.domains for node in fabric.nodes}
        assert found["a"] == {LEAF: "leaf1", SPINE: "spine1", CORE: "root"}
        assert found["a"][SPINE] == found["b"][SPINE] != found["c"][SPINE]


def test_row_26_a_weaker_link_and_one_that_leads_nowhere(read: Read) -> None:
    """Eight GPUs on an NVSwitch, GPU 7 with one of 18 links gone; the CPU has no attributes."""
    gpus = "".join(
        f'<pci busid="0000:{gpu:02x}:00.0" class="0x030200"><gpu dev="{gpu}" sm="90">\n'
        f'<nvlink target="0000:f0:00.0" count="{17 if gpu == 7 else 18}" tclass="0x068000"/>\n'
        + ('<nvlink target="-1" count="1"/>' if gpu == 7 else "")
        + "</gpu></pci>\n"
        for gpu in range(8)
    )
    combined = read(n0=f"<system><cpu>{gpus}</cpu></system>")
    (node,) = combined.fabric.nodes
    assert (node.accelerators, node.domains) == (8, {ISLAND: "n0"})
    assert node.weak_pairs == {(gpu, 7) for gpu in range(7)}
    assert any("1 link of GPU 7 to -1" in problem.message and problem.line for problem in combined.problems)


def test_row_26_a_partial_bridge_among_whole_ones(read: Read) -> None:
    rows = ["\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity"]
    for row in range(4):
        cells = ["X" if row == column else "NV3" if {row, column} == {0, 1} else "NV4" for column in range(4)]
        rows.append("\t".join([f"GPU{row}", *cells, "0-63"]))
    combined = read(n0="\n".join(rows))
    (node,) = combined.fabric.nodes
    assert node.weak_pairs == {(0, 1)}
    assert any(
        "3 NVLinks join GPU0 and GPU1, 4 most pairs" in problem.message for problem in combined.problems
    )


def test_row_28_an_empty_value_is_empty(read: Read) -> None:
    combined = read(
        "NodeName=n[1-2] Topology= CoreSpecCount=36 Gres=gpu:h100:8\nSwitchName=s Nodes= Switches=t\n"
        "SwitchName=t Nodes=n1,n2\n"
    )
    assert {node.name: (node.domains[LEAF], node.accelerators) for node in combined.fabric.nodes} == {
        "n1": ("t", 8),
        "n2": ("t", 8),
    }
    assert combined.fabric.nodes[0].accelerator == "H100"
