"""Kubernetes objects, from the API references of their makers."""

from __future__ import annotations

import json

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.sources.hypernodes import safe_pattern
from tests.orchestrator.topology.conftest import Read, Refusal

ISLAND, LEAF, SPINE, CORE = Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE


def node(name: str, labels: dict[str, str] | None = None, gpus: int = 8, **more: object) -> dict[str, object]:
    found: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "status": {"capacity": {"nvidia.com/gpu": str(gpus)}, "allocatable": {"nvidia.com/gpu": str(gpus)}},
    }
    return found | more


def nodes(*items: dict[str, object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "NodeList", "items": items}, indent=1)


FAMILIES = {
    "Topograph 1": (
        "fabric.topograph.run/tier-0",
        "fabric.topograph.run/tier-1",
        "fabric.topograph.run/tier-2",
    ),
    "Topograph 0.2": tuple(f"network.topology.nvidia.com/{name}" for name in ("leaf", "spine", "core")),
    "Topograph 0.1": tuple(
        f"network.topology.nvidia.com/{name}" for name in ("block", "spine", "datacenter")
    ),
    # AWS counts from the top: layer 1 is the widest.
    "AWS": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (3, 2, 1)),
    "AWS, four layers": tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (4, 3, 2)),
    "OCI": tuple(
        f"oci.oraclecloud.com/rdma.{name}_id" for name in ("local_block", "network_block", "hpc_island")
    ),
    "CoreWeave": tuple(f"ib.coreweave.cloud/{name}" for name in ("leafgroup", "superpod", "fabric")),
    "Nebius": tuple(f"topology.nebius.com/{name}" for name in ("tier-1", "tier-2", "gpu-cluster-id")),
    "GCP": ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_vendor_s_labels(family: str, read: Read) -> None:
    values = ("near", "middle", "far")
    labels = dict(zip(FAMILIES[family], values, strict=False))
    if "four" in family:
        labels["topology.k8s.aws/network-node-layer-1"] = "region"
    combined = read(nodes(node("n1", labels)))
    assert combined.fabric.nodes[0].domains == dict(
        zip((LEAF, SPINE, CORE)[: len(FAMILIES[family])], values, strict=False)
    )
    assert bool(combined.problems) is ("four" in family)  # layer 1 has no tier left


def test_a_tier_that_is_left_out_keeps_its_place(read: Read) -> None:
    labels = {"fabric.topograph.run/tier-0": "l", "fabric.topograph.run/tier-2": "c"}
    assert read(nodes(node("n1", labels))).fabric.nodes[0].domains == {LEAF: "l", CORE: "c"}


def test_islands(read: Read) -> None:
    combined = read(
        nodes(
            node("a", {"accelerator.topograph.run/domain": "d1"}),
            node("b", {"network.topology.nvidia.com/accelerator": "nvl1"}),
            # A clique is finer than the domain around it.
            node("c", {"nvidia.com/gpu.clique": "uuid.3", "accelerator.topograph.run/domain": "uuid"}),
        )
    )
    assert [found.domains[ISLAND] for found in combined.fabric.nodes] == ["d1", "nvl1", "uuid.3"]


def test_gpus_model_and_state(read: Read) -> None:
    down = [{"type": "Ready", "status": "Unknown"}]
    capacity = {"nvidia.com/gpu": "8"}
    combined = read(
        nodes(
            node("a", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
            node("b", spec={"unschedulable": True}),
            node("c", status={"capacity": capacity, "conditions": down}),
            node("d", status={"capacity": capacity, "allocatable": {"nvidia.com/gpu": "7"}}),
            node("e", {"nvidia.com/gpu.count": "2"}, gpus=20),
            node("f", status={"capacity": {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu": "0"}}),
            node("g", status={"capacity": {"amd.com/gpu": "8"}}),
        )
    )
    found = {n.name: (n.accelerators, n.accelerator, n.alive, n.schedulable) for n in combined.fabric.nodes}
    assert found == {
        "a": (8, "H100", True, True),
        "b": (8, None, True, False),
        "c": (8, None, False, True),
        "d": (7, None, True, True),
        "e": (2, None, True, True),
        "f": (0, None, True, True),
        "g": (8, None, True, True),
    }
    said = " ".join(problem.message for problem in combined.problems)
    assert "d has 8 GPUs of which 7 can be given out" in said
    assert "e offers 20 GPUs and has 2" in said
    assert "f offers MIG devices (nvidia.com/mig-1g.10gb)" in said


def test_a_topology_names_the_levels_of_the_nodes(read: Read) -> None:
    topology = (
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: t}\nspec:\n  levels:\n"
        "  - nodeLabel: example.com/hall\n  - nodeLabel: example.com/row\n  - nodeLabel: kubernetes.io/hostname\n"
    )
    labels = [{"example.com/hall": hall, "example.com/row": "r1"} for hall in ("h1", "h2")]
    combined = read(**{"t.yaml": topology, "n.json": nodes(node("a", labels[0]), node("b", labels[1]))})
    assert [found.domains for found in combined.fabric.nodes] == [
        {LEAF: "h1/r1", SPINE: "h1"},
        {LEAF: "h2/r1", SPINE: "h2"},
    ]
    assert combined.problems == ()


def hypernode(name: str, tier: int | str, *members: str, **more: str) -> str:
    extra = "".join(f"\n  {key}: {value}" for key, value in more.items())
    listed = "".join(f"\n  - {member}" for member in members)
    return (
        f"apiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata:\n  name: {name}\nspec:\n"
        f"  tier: {tier}{extra}\n"
        f"  members:{listed}\n"
    )


def exact(kind: str, name: str) -> str:
    return f"{{type: {kind}, selector: {{exactMatch: {{name: {name}}}}}}}"


def test_hypernodes_of_volcano_s_guide(read: Read) -> None:
    text = "---\n".join(
        [
            hypernode("s0", 1, exact("Node", "node-0"), exact("Node", "node-1")),
            hypernode("s1", 1, exact("Node", "node-2")),
            hypernode("s2", 1, exact("Node", "node-3")),
            hypernode("s4", 2, exact("HyperNode", "s0"), exact("HyperNode", "s1")),
            hypernode("s6", '"3"', exact("HyperNode", "s4"), exact("HyperNode", "s2")),
        ]
    )
    found = {n.name: n.domains for n in read(text).fabric.nodes}
    assert found["node-0"] == found["node-1"] == {LEAF: "s0", SPINE: "s4", CORE: "s6"}
    assert found["node-2"] == {LEAF: "s1", SPINE: "s4", CORE: "s6"}
    assert found["node-3"] == {LEAF: "s2", CORE: "s6"}


def test_hypernodes_choose_nodes_by_pattern_and_label(read: Read) -> None:
    text = "---\n".join(
        [
            hypernode("rack", 1, "{type: Node, selector: {regexMatch: {pattern: '^gpu-[0-9]+$'}}}"),
            hypernode(
                "nvl", 1, "{type: Node, selector: {labelMatch: {matchLabels: {tray: t1}}}}", tierName="nvlink"
            ),
        ]
    )
    items = [node("gpu-1", {"tray": "t1"}), node("gpu-2"), node("other")]
    combined = read(**{"h.yaml": text, "n.json": nodes(*items)})
    found = {n.name: n.domains for n in combined.fabric.nodes}
    assert found == {"gpu-1": {ISLAND: "nvl", LEAF: "rack"}, "gpu-2": {LEAF: "rack"}, "other": {}}


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "a*a*a*a*b", "(a|aa)*b", r"(.)\1", "(?=a)a", "a{999}", "[", "x" * 300]
)
def test_patterns_that_may_never_end_are_not_tried(pattern: str) -> None:
    assert not safe_pattern(pattern)


@pytest.mark.parametrize("pattern", ["^node-[0-9]+$", "gpu-(a|b)-.*", r"rack\d{1,2}-n\d+", "^(n1|n2)$"])
def test_patterns_people_write_are(pattern: str) -> None:
    assert safe_pattern(pattern)


def test_what_is_no_list_of_nodes_is_refused(refusal: Refusal) -> None:
    assert "holds Pod: no node" in refusal("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    assert "a node has no name" in refusal("apiVersion: v1\nkind: Node\nmetadata: {}\n")
    assert "holds an empty list" in refusal('{"apiVersion": "v1", "kind": "NodeList", "items": []}')
    cut = nodes(node("n1"), node("n2"))[:200]
    assert "not valid JSON" in refusal(cut)


def test_several_documents_in_yaml(read: Read) -> None:
    text = "".join(
        f"---\napiVersion: v1\nkind: Node\nmetadata:\n  name: n{i}\n  labels:\n    leaf: l{i % 2}\n"
        for i in range(4)
    )
    assert [found.domains[LEAF] for found in read(text).fabric.nodes] == ["l0", "l1", "l0", "l1"]
