"""Every file of the shared folder `topology`: what a person reads in it; numbers were written down from the files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.combine import Combined
from orchestrator.topology.fabric import Node, Slot
from tests.orchestrator.topology.conftest import Read, Refusal

ISLAND, LEAF, SPINE, CORE = Tier.ISLAND, Tier.LEAF, Tier.SPINE, Tier.CORE

# file: nodes, GPUs (0: the file does not say), domains per tier
READ: dict[str, tuple[int, int, dict[Tier, int]]] = {
    "slurm/comment-ids.conf": (3, 0, {LEAF: 2, SPINE: 1}),
    "slurm/topograph-aws-provider_sim-2.conf": (128, 0, {ISLAND: 2}),
    "slurm/topograph-expected-oci-tree.conf": (96, 0, {LEAF: 12, SPINE: 6, CORE: 1}),
    "slurm/topograph-gcp-provider_sim-1.conf": (4, 0, {LEAF: 2, SPINE: 1, CORE: 1}),
    "slurm/topograph-nebius-provider_sim-0.conf": (1, 0, {}),
    "slurm/topograph-nebius-provider_sim-1.conf": (1, 0, {}),
    "slurm/topograph-nebius-provider_sim-2.conf": (5, 0, {LEAF: 2, SPINE: 1, CORE: 1}),
    "slurm/topograph-nebius-provider_sim-3.conf": (5, 0, {LEAF: 2, SPINE: 1, CORE: 1}),
    "slurm/topograph-oci-provider_sim-0.conf": (5, 0, {LEAF: 2, SPINE: 1, CORE: 1}),
    "slurm/topograph-oci-provider_sim-1.conf": (4, 0, {ISLAND: 2}),
    "slurm/topograph-slinky-engine-0.conf": (2, 0, {ISLAND: 2}),
    "slurm/topograph-slurm-slurm-0.conf": (6, 0, {LEAF: 2, SPINE: 1}),
    "slurm/topograph-translate-block-1.conf": (3, 0, {ISLAND: 2}),
    "slurm/topograph-translate-topology-0.conf": (6, 0, {LEAF: 2, SPINE: 1}),
    "slurm/topograph-translate-topology-2.conf": (12, 0, {ISLAND: 4}),
    "slurm/topograph-translate-topology-6.conf": (2, 0, {LEAF: 2, SPINE: 2, CORE: 1}),
    "slurm/topograph-translate-topology-7.conf": (6, 0, {ISLAND: 2}),
    "topograph-models/dual-xclr-regular.yaml": (96, 0, {ISLAND: 2, LEAF: 12, SPINE: 6, CORE: 1}),
    "topograph-models/medium-h100.yaml": (10, 0, {ISLAND: 1, LEAF: 4, SPINE: 2, CORE: 1}),
    "netq/topologyGraph.json": (8, 0, {LEAF: 2, SPINE: 1}),
    "ibnetdiscover/topograph-example.out": (120, 0, {LEAF: 8, SPINE: 1}),
    "k8s/kai-topology-aliases.yaml": (0, 0, {}),
    "k8s/kueue-multikueue-tas-worker-setup.yaml": (0, 0, {}),
    "k8s/kueue-tas-kind-cluster.yaml": (8, 0, {LEAF: 4, SPINE: 2}),
    "nvidia-smi/1gpu-6nic.txt": (1, 1, {}),
    "nvidia-smi/a100-4gpu-nv4-1nic-della.txt": (1, 4, {ISLAND: 1}),
    "nvidia-smi/a100-pair-header-shifted-2socket.txt": (1, 2, {ISLAND: 1}),
    "nvidia-smi/a6000-4gpu-2pairs-nv4-1nic.txt": (1, 4, {ISLAND: 2}),
    "nvidia-smi/dgx-h100-8gpu-12nic.txt": (1, 8, {ISLAND: 1}),
    "nvidia-smi/dgx1-v100-8gpu-1nic-2018.txt": (1, 8, {ISLAND: 1}),
    "nvidia-smi/dgx1-v100-8gpu-nonic-numaid.txt": (1, 8, {ISLAND: 1}),
    "nvidia-smi/gb200-nvl72-tray-tab.txt": (1, 4, {ISLAND: 1}),
    "nvidia-smi/h100-4gpu-cpuset-empty-affinity.txt": (1, 4, {ISLAND: 1}),
    "nvidia-smi/h100-pcie-pair-indented.txt": (1, 2, {ISLAND: 1}),
    "nvidia-smi/h200-8gpu-2xNVL4.txt": (1, 8, {ISLAND: 2}),
    "nvidia-smi/l40s-4gpu-header-shifted.txt": (1, 4, {}),
    "nvidia-smi/mig-list-a100-mixed.txt": (1, 3, {}),
    "nvidia-smi/mig-list-one-of-four.txt": (1, 4, {}),
    "nvidia-smi/p3-8xlarge-v100-4gpu-numa-na.txt": (1, 4, {ISLAND: 1}),
    "nvidia-smi/p40-8gpu-soc-old-driver.txt": (1, 8, {}),
    "nvidia-smi/pcie-4gpu-pxb-pix-hang.txt": (1, 4, {}),
    "nvidia-smi/pcie-6gpu-ansi-tabs.txt": (1, 6, {}),
    "nvidia-smi/rtx3090-pair-nv3-partial-bridge.txt": (1, 2, {ISLAND: 1}),
    "nvidia-smi/rtx3090-pair-nv4.txt": (1, 2, {ISLAND: 1}),
    "nvidia-smi/rtx5090-pair-phb-with-p2p-gns.txt": (1, 2, {}),
    "nvidia-smi/topo-mp-8gpu-nodes-no-nvlink-view-truncated.txt": (1, 8, {}),
    "nvidia-smi/v100-4gpu-dcgm-na.txt": (1, 4, {}),
    "nvidia-smi/v100-8gpu-4nic-shuffled-columns.txt": (1, 8, {ISLAND: 1}),
    "nvidia-smi/v100-vm-8gpu-1nic.txt": (1, 8, {ISLAND: 1}),
    "nccl-xml/azure-ndv2-topo.xml": (1, 8, {}),
    "nccl-xml/rccl-topo_4p1h.xml": (1, 4, {ISLAND: 1}),
    "nccl-xml/rccl-topo_4p1h_1.xml": (1, 4, {ISLAND: 1}),
    "nccl-xml/rccl-topo_4p3l_n2_1.xml": (1, 8, {ISLAND: 2}),
    "nccl-xml/rccl-topo_4p_940.xml": (1, 4, {ISLAND: 1}),
    "nccl-xml/rccl-topo_8p6l.xml": (1, 8, {ISLAND: 1}),
    "nccl-xml/rccl-topo_8p_rome_4nics.xml": (1, 8, {ISLAND: 2}),
    "nccl-xml/rccl-topo_8p_rome_pcie.xml": (1, 8, {}),
    "nccl-xml/rccl-topo_8p_ts1.xml": (1, 8, {ISLAND: 2}),
    "nccl-xml/rccl-topo_8p_ts1_1.xml": (1, 8, {ISLAND: 2}),
    "nccl-xml/rccl-topo_collnet_n1.xml": (1, 8, {ISLAND: 2}),
    "nccl-xml/rccl-topo_collnet_n4.xml": (1, 8, {ISLAND: 2}),
}

# file: words of the reason
REFUSED: dict[str, str] = {
    "topograph-payloads/aws-sim-block.json": "holds none: no node is in it; give the model tests/models/medium.yaml",
    "topograph-payloads/oci-sim-large-block.json": "no node is in it; give the model tests/models/large.yaml",
    "topograph-payloads/test-block.json": "no node is in it; give the model large.yaml",
    "topograph-payloads/toposim-tree.json": "no node is in it; give the model medium.yaml",
    "topograph-payloads/values.k8s.ib-example.yaml": "asks Topograph (provider infiniband-k8s, engine k8s)",
    "topograph-payloads/values.slinky.block-example.yaml": "asks Topograph (provider aws, engine slinky)",
    "topograph-payloads/values.slinky.ib.block-example.yaml": "asks Topograph (provider infiniband-k8s, engine slinky)",
    "topograph-payloads/values.slinky.partition-example.yaml": "asks Topograph (provider aws, engine slinky)",
    "topograph-payloads/values.slinky.tree-example.yaml": "asks Topograph (provider aws, engine slinky)",
    "k8s/kai-fake-gpu-operator-values.yaml": "is YAML with the keys topology, environment, statusUpdater",
    "k8s/kueue-jobs-sample-jobset-tas-required.yaml": "holds JobSet: no node",
    "k8s/kueue-tas-sample-job-preferred.yaml": "holds Job: no node",
    "k8s/kueue-tas-sample-job-required.yaml": "holds Job: no node",
    "k8s/kueue-tas-sample-job-unconstrained.yaml": "holds Job: no node",
    "k8s/volcano-networktopology-guide-0.yaml": "a piece of a Volcano job: it asks for a placement",
    "k8s/volcano-networktopology-guide-2.yaml": "a piece of a Volcano job: it asks for a placement",
    "k8s/volcano-networktopology-guide-5.yaml": "line 5: not valid YAML",
}


def domains(combined: Combined) -> dict[Tier, int]:
    """Distinct domains per tier over all GPUs, and over nodes whose GPUs are not known."""
    found: dict[Tier, set[str]] = {}
    for node in combined.fabric.nodes:
        for tier, name in node.domains.items():
            found.setdefault(tier, set()).add(name)
        for island in node.islands.values():
            found.setdefault(ISLAND, set()).add(island)
    return {tier: len(names) for tier, names in found.items()}


def only(combined: Combined) -> Node:
    (node,) = combined.fabric.nodes
    return node


def said(combined: Combined, words: str, line: int | None = None) -> bool:
    return any(words in problem.message and line in (None, problem.line) for problem in combined.problems)


def test_no_file_is_left_out(topology_data: Path) -> None:
    files = {str(path.relative_to(topology_data)) for path in topology_data.rglob("*") if path.is_file()}
    assert files == {*READ, *REFUSED}


@pytest.mark.parametrize("name", READ)
def test_a_file_holds_what_a_person_counts(name: str, shared: Read) -> None:
    combined = shared(name)
    nodes, gpus, expected = READ[name]
    assert len(combined.fabric.nodes) == nodes
    assert sum(node.accelerators for node in combined.fabric.nodes) == gpus
    assert domains(combined) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_is_refused_for_the_right_reason(name: str, shared_refusal: Refusal) -> None:
    assert REFUSED[name] in shared_refusal(name)


# GPU -> adapters nearest to it
RAILS: dict[str, dict[int, tuple[str, ...]]] = {
    "nvidia-smi/1gpu-6nic.txt": {0: ("NIC0", "NIC1")},
    "nvidia-smi/a100-4gpu-nv4-1nic-della.txt": dict.fromkeys(range(4), ("mlx5_0",)),
    "nvidia-smi/a6000-4gpu-2pairs-nv4-1nic.txt": dict.fromkeys(range(4), ("NIC0",)),
    "nvidia-smi/dgx-h100-8gpu-12nic.txt": {
        gpu: (f"NIC{nic}",) for gpu, nic in enumerate((0, 3, 4, 5, 6, 9, 10, 11))
    },
    "nvidia-smi/topo-mp-8gpu-nodes-no-nvlink-view-truncated.txt": {
        gpu: (f"NIC{nic}",) for gpu, nic in enumerate((0, 1, 2, 7))
    },
    "nvidia-smi/v100-8gpu-4nic-shuffled-columns.txt": {
        gpu: (f"mlx5_{nic}",) for gpu, nic in enumerate((0, 0, 1, 1, 2, 2, 3, 3))
    },
    "nvidia-smi/v100-vm-8gpu-1nic.txt": dict.fromkeys(range(8), ("NIC0",)),
    "nvidia-smi/dgx1-v100-8gpu-nonic-numaid.txt": {},
    "nccl-xml/azure-ndv2-topo.xml": dict.fromkeys(range(8), ("0101:00:00.0",)),
    "nccl-xml/rccl-topo_4p1h_1.xml": dict.fromkeys(range(4), ("eno1",)),
    "nccl-xml/rccl-topo_4p_940.xml": {gpu: (f"cxi{gpu}",) for gpu in range(4)},
    "nccl-xml/rccl-topo_8p_rome_4nics.xml": {
        gpu: (f"mlx5_{nic}",) for gpu, nic in enumerate((1, 1, 3, 3, 5, 5, 7, 7))
    },
    # mlx5_0 is on the socket of GPU 0, mlx5_2 on that of GPU 7; the other GPUs are on sockets without an adapter.
    "nccl-xml/rccl-topo_8p_ts1.xml": {
        gpu: {0: ("mlx5_0",), 7: ("mlx5_2",)}.get(gpu, ("mlx5_0", "mlx5_2")) for gpu in range(8)
    },
}


@pytest.mark.parametrize("name", RAILS)
def test_the_adapter_nearest_to_each_gpu(name: str, shared: Read) -> None:
    assert only(shared(name)).rails == RAILS[name]


# groups of GPUs that NVLink or xGMI joins, where there are several
ISLANDS: dict[str, list[list[int]]] = {
    "nvidia-smi/a6000-4gpu-2pairs-nv4-1nic.txt": [[0, 1], [2, 3]],
    "nvidia-smi/h200-8gpu-2xNVL4.txt": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "nccl-xml/rccl-topo_4p3l_n2_1.xml": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "nccl-xml/rccl-topo_8p_rome_4nics.xml": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "nccl-xml/rccl-topo_8p_ts1.xml": [[0, 1, 2, 3], [4, 5, 6, 7]],
    # 43-03, 43-c6, 23-e3, 23-83, 26-03, 26-c6, e3-c3, c3-83: two rings across the sockets
    "nccl-xml/rccl-topo_8p_ts1_1.xml": [[0, 2, 3, 6], [1, 4, 5, 7]],
}


@pytest.mark.parametrize("name", ISLANDS)
def test_islands_smaller_than_the_node(name: str, shared: Read) -> None:
    combined = shared(name)
    node = only(combined)
    groups: dict[str | None, list[int]] = {}
    for index in range(node.accelerators):
        groups.setdefault(combined.fabric.domain(Slot(node.name, index), ISLAND), []).append(index)
    assert list(groups.values()) == ISLANDS[name]


# file: line, words: what a person notices
NOTICED: list[tuple[str, int | None, str]] = [
    ("slurm/topograph-nebius-provider_sim-2.conf", 2, "no switch is known for node31"),
    ("slurm/topograph-oci-provider_sim-0.conf", 3, "no switch is known for node31"),
    ("slurm/topograph-translate-block-1.conf", 3, "block b2 has 1 node and the smallest block size is 2"),
    ("topograph-models/medium-h100.yaml", 30, "no switch holds n10-1, n10-2"),
    (
        "k8s/kai-topology-aliases.yaml",
        11,
        "names 2 levels (accelerator.nvidia.com/rack, kubernetes.io/hostname)",
    ),
    ("nvidia-smi/a6000-4gpu-2pairs-nv4-1nic.txt", 1, "2 islands (2 and 2)"),
    ("nvidia-smi/h200-8gpu-2xNVL4.txt", 1, "2 islands (4 and 4)"),
    (
        "nvidia-smi/dgx-h100-8gpu-12nic.txt",
        15,
        "columns without rows, read from the rows of the GPUs: NIC6, NIC7, NIC8, NIC9, NIC10, NIC11",
    ),
    ("nvidia-smi/dgx1-v100-8gpu-1nic-2018.txt", 1, "12 pairs of one island have no NVLink of their own"),
    ("nvidia-smi/h100-4gpu-cpuset-empty-affinity.txt", 3, "no CPU is near GPU1, GPU2, GPU3"),
    ("nvidia-smi/mig-list-one-of-four.txt", 4, "GPU 1 is cut into 1 MIG device (3g.20gb)"),
    (
        "nvidia-smi/mig-list-a100-mixed.txt",
        2,
        "GPU 0 is cut into 4 MIG devices (1g.5gb, 3g.20gb, 1g.5gb, 2g.10gb)",
    ),
    ("nvidia-smi/mig-list-a100-mixed.txt", 7, "GPU 1 is cut into 2 MIG devices (3g.40gb, 1g.10gb+me)"),
    ("nvidia-smi/rtx3090-pair-nv3-partial-bridge.txt", 2, "3 NVLinks join GPU0 and GPU1"),
    ("nvidia-smi/rtx5090-pair-phb-with-p2p-gns.txt", 15, "peer-to-peer access is GNS"),
    (
        "nvidia-smi/topo-mp-8gpu-nodes-no-nvlink-view-truncated.txt",
        7,
        "the row GPU4 ends after 15 of 22 cells",
    ),
    (
        "nvidia-smi/topo-mp-8gpu-nodes-no-nvlink-view-truncated.txt",
        7,
        "ends before the rows GPU5, GPU6, GPU7",
    ),
    ("nvidia-smi/topo-mp-8gpu-nodes-no-nvlink-view-truncated.txt", 2, "topo -mp shows no NVLink"),
    ("nvidia-smi/v100-4gpu-dcgm-na.txt", 1, "every cell between GPUs is N/A"),
    ("nvidia-smi/v100-8gpu-4nic-shuffled-columns.txt", 1, "all GPUs name the CPUs 0-19,40-59"),
    ("nccl-xml/azure-ndv2-topo.xml", 3, "NVLinks are not in the file"),
    ("nccl-xml/rccl-topo_4p1h_1.xml", 28, "virbr0 is on no PCI device"),
    ("nccl-xml/rccl-topo_4p_940.xml", 12, "cxi0 has the speed 200000 Gb/s, which no adapter has"),
    ("nccl-xml/rccl-topo_8p6l.xml", None, "4 pairs of one island have no link of their own"),
    ("ibnetdiscover/topograph-example.out", None, "69 adapters still have their factory name"),
    ("ibnetdiscover/topograph-example.out", 2274, "2 adapters belong to hosts called ubuntu"),
    ("ibnetdiscover/topograph-example.out", 5438, "3 adapters belong to hosts called localhost"),
]


@pytest.mark.parametrize(("name", "line", "words"), NOTICED)
def test_what_a_person_notices_is_said_with_its_line(
    name: str, line: int | None, words: str, shared: Read
) -> None:
    combined = shared(name)
    assert said(combined, words, line), [(problem.line, problem.message) for problem in combined.problems]


def test_nothing_is_said_of_a_file_that_is_well(shared: Read) -> None:
    for name in (
        "slurm/topograph-expected-oci-tree.conf",
        "nvidia-smi/gb200-nvl72-tray-tab.txt",
        "netq/topologyGraph.json",
    ):
        assert shared(name).problems == ()


def test_the_infiniband_fabric_of_eight_groups_of_rails(shared: Read) -> None:
    """Hosts per scalable unit, counted in the switches' ports: the first unit has three leaves, the others four."""
    combined = shared("ibnetdiscover/topograph-example.out")
    units = Counter(node.name.rsplit("-c", 1)[0] for node in combined.fabric.nodes)
    assert units == {
        "s1r05-p1-dgx-01": 10,
        "s1r06-p1-dgx-02": 11,
        "s1r07-p1-dgx-03": 18,
        "s1r08-p1-dgx-04": 17,
        "s2r05-p1-dgx-05": 18,
        "s2r06-p1-dgx-06": 15,
        "s2r07-p1-dgx-07": 16,
        "s2r08-p1-dgx-08": 14,
        "S2R11-P1-CUFM-02": 1,
    }
    leaf_of = {node.name.rsplit("-c", 1)[0]: node.domains[LEAF] for node in combined.fabric.nodes}
    assert leaf_of["s2r08-p1-dgx-08"] == leaf_of["S2R11-P1-CUFM-02"]
    assert combined.facts == {
        "leaf switches": 31,
        "switches above the leaves": 9,
        "adapters": 10 * 3 + 109 * 4 + 2,
    }
    link = combined.fabric.links[LEAF]
    assert (link.kind, link.bandwidth) == ("ib-ndr", 400e9 / 8)
    # 17, 18 and 18 cables lead up from the leaves of the first unit, the narrowest.
    assert combined.fabric.links[SPINE].uplink == (17 + 18 + 18) * 400e9 / 8


def test_the_roce_fabric(shared: Read) -> None:
    leaf_of = {node.name: node.domains[LEAF] for node in shared("netq/topologyGraph.json").fabric.nodes}
    assert leaf_of == {f"dgx-0{n}": "net-unit-l1" if n < 5 else "net-unit-l2" for n in range(1, 9)}


def test_racks_of_one_name_in_two_blocks_are_two_racks(shared: Read) -> None:
    nodes = shared("k8s/kueue-tas-kind-cluster.yaml").fabric.nodes
    assert Counter(node.domains[LEAF] for node in nodes) == {"b1/r1": 2, "b1/r2": 2, "b2/r1": 2, "b2/r2": 2}


def test_an_island_of_two_blocks(shared: Read) -> None:
    nodes = shared("topograph-models/medium-h100.yaml").fabric.nodes
    assert {node.name for node in nodes if node.domains.get(ISLAND) == "nv1"} == {
        "n10-1",
        "n10-2",
        "n11-1",
        "n11-2",
    }
    assert {node.accelerator for node in nodes} == {"H100"}


def test_numbers_that_files_state(shared: Read) -> None:
    link = shared("nccl-xml/rccl-topo_8p_rome_4nics.xml").fabric.links[LEAF]
    assert (link.kind, link.bandwidth, link.uplink) == ("ib-hdr", 25e9, 4 * 25e9)
    assert LEAF not in shared("nccl-xml/rccl-topo_4p_940.xml").fabric.links


def test_weaker_pairs(shared: Read) -> None:
    """AWS p3.8xlarge: two links between GPUs 0-3, 1-2 and 2-3, one between the others."""
    assert only(shared("nvidia-smi/p3-8xlarge-v100-4gpu-numa-na.txt")).weak_pairs == {(0, 1), (0, 2), (1, 3)}


def test_gpus_cut_by_mig(shared: Read) -> None:
    assert only(shared("nvidia-smi/mig-list-one-of-four.txt")).partitioned == {1}
    assert only(shared("nvidia-smi/mig-list-a100-mixed.txt")).partitioned == {0, 1, 2}
