"""Labels that say where in the network a node is, and the tier each stands for.

A *family* is one vendor's way to write the tiers, given here nearest first: several vendors number from the
top. Sources: Topograph docs/reference/node-labels.md (and its releases 0.1 to 1.0), GPU Operator
(`nvidia.com/gpu.clique`), the user guides of EKS, GKE, OKE, CoreWeave and Nebius, KEP-4962, Kueue's TAS
examples.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.spec.sections import Tier
from orchestrator.topology.sources.switch_tree import HEIGHTS, is_no_switch

_NUMBERED = re.compile(r"fabric\.topograph\.run/tier-(\d{1,2})")
_AWS_LAYER = "topology.k8s.aws/network-node-layer-"
_AWS = re.compile(re.escape(_AWS_LAYER) + r"(\d)")

ISLAND_LABELS: tuple[str, ...] = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "network.topology.kubernetes.io/accelerator",
    "topology.k8s.aws/ultraserver-id",
    "ds.coreweave.com/nvlink.domain",
    "topology.nebius.com/nvl-instance-group-id",
    "topology.nebius.com/tier-0",
    "atoll.run/island",
    "island",
)
"""The first that a node has counts. A clique is the finest: it is what NVLink can really reach."""
FAMILIES: tuple[tuple[str, ...], ...] = (
    (
        "network.topology.nvidia.com/leaf",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/core",
    ),
    (
        "network.topology.nvidia.com/block",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/datacenter",
    ),
    (
        "network.topology.kubernetes.io/block",
        "network.topology.kubernetes.io/spine",
        "network.topology.kubernetes.io/datacenter",
    ),
    ("cloud.google.com/gce-topology-subblock", "cloud.google.com/gce-topology-block"),
    (
        "oci.oraclecloud.com/rdma.local_block_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.hpc_island_id",
    ),
    ("oci.oraclecloud.com/host.rack_id", "oci.oraclecloud.com/host.network_block_id"),
    (
        "backend.coreweave.cloud/leafgroup",
        "backend.coreweave.cloud/superpod",
        "backend.coreweave.cloud/fabric",
    ),
    ("ib.coreweave.cloud/leafgroup", "ib.coreweave.cloud/superpod", "ib.coreweave.cloud/fabric"),
    ("topology.nebius.com/tier-1", "topology.nebius.com/tier-2", "topology.nebius.com/gpu-cluster-id"),
    ("cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"),
    ("leaf", "spine", "core"),
)
_ZEROS = re.compile(r"[0.\-:_\s]*")
_NO_UUID = re.compile(r"0{8}-(?:0{4}-){3}0{12}.*|x?0{16,}")
_NOTHING = frozenset(
    {"", "n/a", "na", "none", "null", "nil", "unknown", "undefined", "[n/a]", "not applicable"}
)


@dataclass(frozen=True, slots=True)
class Position:
    """Where labels put a node."""

    domains: Mapping[Tier, str]
    dropped: tuple[str, ...] = ()
    """Labels above the core tier."""
    nonsense: tuple[str, ...] = ()
    """Labels whose value stands for nothing: `KEY=VALUE`."""


def real_name(value: str) -> str | None:
    """The name of a switch, unless it stands for none: empty, N/A, a UUID of zeros. `0` may well be a rack."""
    text = value.strip()
    return None if text.lower() in _NOTHING or _NO_UUID.fullmatch(text) or is_no_switch(text) else text


def real_id(value: str) -> str | None:
    """The name of an island, unless it stands for none: empty, N/A, zeros, a clique without a cluster."""
    text = real_name(value)
    if text is None or _ZEROS.fullmatch(text):
        return None
    cluster, dot, _ = text.rpartition(".")
    if dot and (cluster.strip().lower() in _NOTHING or _ZEROS.fullmatch(cluster)):
        return None
    return text


def real_clique(value: str) -> str | None:
    """`nvidia.com/gpu.clique` is CLUSTER.CLIQUE; a number without a cluster would join racks that are strangers."""
    text = real_id(value)
    return None if text is None or text.isdecimal() or text.endswith(".") else text


def positions(nodes: Sequence[Mapping[str, str]], levels: Sequence[str] = ()) -> list[Position]:
    """Position of each node by its labels; `levels` are label keys from the top down that a Kueue Topology names."""
    own, families = _own_levels(levels), _known_families(nodes)
    paths = [_path(labels, own, families) for labels in nodes]
    names = _qualified([path for path, _ in paths])
    found = []
    for labels, path, (_, dropped) in zip(nodes, names, paths, strict=True):
        island, nonsense = _island(labels)
        domains = {Tier.ISLAND: island} if island else {}
        keys = {key for family in (*own, *families) for key in family if key in labels}
        bad = [f"{key}={labels[key]}" for key in sorted(keys) if real_name(labels[key]) is None]
        found.append(Position(domains | path, dropped, (*nonsense, *bad)))
    return found


def _own_levels(levels: Sequence[str]) -> list[tuple[str, ...]]:
    """A Topology's levels, nearest first, without the node itself and what is an island."""
    switches = [key for key in levels if key not in ISLAND_LABELS and key != "kubernetes.io/hostname"]
    return [tuple(reversed(switches))] if switches else []


def _known_families(nodes: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    keys = {key for labels in nodes for key in labels}
    # Tier 0 is the nearest, and a tier that is left out still counts; AWS numbers its layers from the top.
    highest = max((int(match[1]) for key in keys if (match := _NUMBERED.fullmatch(key))), default=-1)
    numbered = tuple(f"fabric.topograph.run/tier-{number}" for number in range(highest + 1))
    layers = sorted((int(match[1]) for key in keys if (match := _AWS.fullmatch(key))), reverse=True)
    aws = tuple(f"{_AWS_LAYER}{number}" for number in layers)
    return [numbered, *FAMILIES[:3], aws, *FAMILIES[3:]]


def _path(
    labels: Mapping[str, str], own: Sequence[tuple[str, ...]], families: Sequence[tuple[str, ...]]
) -> tuple[dict[Tier, str], tuple[str, ...]]:
    """Domains by a Topology's levels, else by the family that the node has most labels of; labels above the core."""
    present = [sum(key in labels for key in family) for family in families]
    best = families[present.index(max(present))]
    for family in (*own, best):
        if family and family[0].startswith(_AWS_LAYER):
            # Instances hang on their lowest layer, the third or the fourth.
            family = tuple(key for key in family if key in labels)
        domains = {
            tier: value
            for tier, key in zip(HEIGHTS, family, strict=False)
            if key in labels and (value := real_name(labels[key])) is not None
        }
        if domains:
            return domains, tuple(key for key in family[len(HEIGHTS) :] if key in labels)
    return {}, ()


def _qualified(paths: list[dict[Tier, str]]) -> list[dict[Tier, str]]:
    """`paths` with the names above written before a name that occurs below several: rack r1 of block b1 is `b1/r1`."""
    for tier, above in ((Tier.SPINE, Tier.CORE), (Tier.LEAF, Tier.SPINE)):
        parents: defaultdict[str, set[str | None]] = defaultdict(set)
        for path in paths:
            if tier in path:
                parents[path[tier]].add(path.get(above))
        several = {name for name, found in parents.items() if len(found - {None}) > 1}
        paths = [
            {**path, tier: f"{path[above]}/{path[tier]}"}
            if path.get(tier) in several and above in path
            else path
            for path in paths
        ]
    return paths


def _island(labels: Mapping[str, str]) -> tuple[str | None, list[str]]:
    nonsense: list[str] = []
    for key in ISLAND_LABELS:
        if key not in labels:
            continue
        value = real_clique(labels[key]) if key == "nvidia.com/gpu.clique" else real_id(labels[key])
        if value is not None:
            return value, nonsense
        nonsense.append(f"{key}={labels[key]}")
    return None, nonsense
