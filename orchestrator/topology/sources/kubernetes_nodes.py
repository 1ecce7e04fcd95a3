"""Nodes of Kubernetes (`kubectl get nodes -o yaml` or json), kind's cluster files, and Topologies of Kueue and
KAI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Table, line_of, number_at, rows_at, table_at, text_at
from orchestrator.topology.sources.link_kinds import gpu_model
from orchestrator.topology.sources.node_labels import ISLAND_LABELS, Position, positions
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed, shortened

_GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
_MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.nvidia.com/model")
_MAX_GPUS = 1024


def labels_by_node(nodes: Iterable[Table]) -> dict[str, dict[str, str]]:
    return {name: _labels(node) for node in nodes if (name := text_at(node, "metadata", "name")) is not None}


def _labels(item: Table) -> dict[str, str]:
    labels = table_at(item, "metadata", "labels") or table_at(item, "labels")
    return {key: value for key, value in labels.items() if isinstance(value, str)}


def read_nodes(content: Content, items: Sequence[Table], levels: Sequence[str]) -> Reading:
    """An inventory. InvalidFabricError where a node has no name."""
    problems: list[Problem] = []
    named: dict[str, Table] = {}
    for item in items:
        name = text_at(item, "metadata", "name")
        if name is None:
            raise content.refuse(f"line {item.line or '?'}: a node has no name (metadata.name)")
        if name in named:
            problems.append(content.problem(item.line, f"node {name} is listed twice; the first counts"))
        named.setdefault(name, item)
    places = dict(zip(named, positions([_labels(item) for item in named.values()], levels), strict=True))
    nodes = tuple(
        _node(content, name, named[name], places[name], problems) for name in sorted(named, key=natural_key)
    )
    problems += _notes(content, named, places, nodes)
    return Reading("Kubernetes nodes", Fabric(nodes), tuple(problems), inventory=True)


def _node(content: Content, name: str, item: Table, place: Position, problems: list[Problem]) -> Node:
    labels = _labels(item)
    ready = [
        text_at(condition, "status")
        for condition in rows_at(item, "status", "conditions")
        if text_at(condition, "type") == "Ready"
    ]
    product = next((labels[key] for key in _MODEL_LABELS if key in labels), None)
    return Node(
        name,
        _gpus(content, name, item, labels, problems),
        place.domains,
        accelerator=gpu_model(product) if product else None,
        alive=not ready or ready[0] == "True",
        schedulable=table_at(item, "spec").get("unschedulable") is not True,
    )


def _gpus(
    content: Content, name: str, item: Table, labels: Mapping[str, str], problems: list[Problem]
) -> int:
    """Whole GPUs of a node: what the device plugin offers, unless it shares GPUs or cuts them."""
    status = table_at(item, "status", "capacity") or table_at(item, "status", "allocatable")
    offered = sum(number_at(status, key) or 0 for key in _GPU_RESOURCES)
    text = labels.get("nvidia.com/gpu.count", "")
    real = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None
    parts = [key for key in status if key.startswith("nvidia.com/mig-") and number_at(status, key)]
    line = line_of(item, "status") or item.line
    if parts:
        problems.append(
            content.problem(
                line, f"{name} offers MIG devices ({listed(sorted(parts))}): no rank gets those GPUs"
            )
        )
    if real is not None and offered > real > 0:
        shared = f"{name} offers {offered} GPUs and has {real} (nvidia.com/gpu.count), shared in time: {real} count"
        problems.append(content.problem(line, shared))
        offered = real
    healthy = sum(number_at(item, "status", "allocatable", key) or 0 for key in _GPU_RESOURCES)
    if "allocatable" in table_at(item, "status") and healthy < offered and not parts:
        broken = f"{name} has {offered} GPUs of which {healthy} can be given out: the others are not counted"
        problems.append(content.problem(line, broken))
        offered = healthy
    if not offered and not status and not parts and real:
        offered = real
    if offered > _MAX_GPUS:
        raise content.refuse(f"line {line or '?'}: {name} has {offered} GPUs; at most {_MAX_GPUS} are read")
    return offered


def _notes(
    content: Content, items: Mapping[str, Table], places: Mapping[str, Position], nodes: Sequence[Node]
) -> list[Problem]:
    found: list[Problem] = []
    wrong: dict[str, list[str]] = {}
    for name, place in places.items():
        for label in place.nonsense:
            wrong.setdefault(label, []).append(name)
    for label, names in list(wrong.items())[:20]:
        line = items[names[0]].line
        found.append(
            content.problem(
                line,
                f"the label {shortened(label)} of {listed(names)} names nothing: unknown there, joined with nobody",
            )
        )
    dropped = sorted({key for place in places.values() for key in place.dropped})
    if dropped:
        found.append(
            content.problem(
                None,
                f"{listed(dropped)} lie above the core tier and are not kept: three tiers of switches are",
            )
        )
    for tier, what in ((Tier.ISLAND, "island"), (Tier.LEAF, "leaf")):
        lacking = [node.name for node in nodes if node.accelerators and tier not in node.domains]
        if lacking and len(lacking) < sum(1 for node in nodes if node.accelerators):
            line = items[lacking[0]].line
            label = counted(len(lacking), "node has", "nodes have")
            found.append(
                content.problem(
                    line,
                    f"{label} no label for the {what} others have ({listed(lacking)}): placed last there",
                )
            )
    return found


def read_kind_cluster(content: Content, cluster: Table, levels: Sequence[str]) -> Reading:
    """Workers of a kind cluster, named as kind names their containers: NAME-worker, NAME-worker2, ..."""
    name = text_at(cluster, "name") or "kind"
    workers = [row for row in rows_at(cluster, "nodes") if text_at(row, "role") == "worker"]
    if not workers:
        raise content.refuse(f"line {cluster.line or '?'}: a kind cluster without workers")
    names = [f"{name}-worker{number if number > 1 else ''}" for number in range(1, len(workers) + 1)]
    places = positions([_labels(worker) for worker in workers], levels)
    nodes = tuple(Node(name, 0, place.domains) for name, place in zip(names, places, strict=True))
    loose = [node.name for node in nodes if not node.domains]
    problems = []
    if loose:
        problems.append(
            content.problem(cluster.line, f"no label says where {listed(loose)} are: placed last")
        )
    return Reading("kind cluster", Fabric(nodes), tuple(problems))


def read_topology(content: Content, topology: Table, *, has_nodes: bool) -> Reading:
    """No nodes: it only names labels. What they say is read from the nodes of the same files."""
    name = text_at(topology, "metadata", "name") or "?"
    levels = [text_at(level, "nodeLabel") or "?" for level in rows_at(topology, "spec", "levels")]
    if not levels:
        raise content.refuse(
            f"line {topology.line or '?'}: the Topology {shortened(name)} has no levels (spec.levels)"
        )
    problems = []
    known = [label for label in levels if label in ISLAND_LABELS or label == "kubernetes.io/hostname"]
    switches = [label for label in levels if label not in known]
    if not has_nodes:
        problems.append(
            content.problem(
                topology.line,
                f"the Topology {shortened(name)} names {counted(len(levels), 'level')} ({listed(levels)}) and no node; "
                "give the nodes too (kubectl get nodes -o yaml)",
            )
        )
    if len(switches) > 3:
        problems.append(
            content.problem(
                topology.line,
                f"{listed(switches[: len(switches) - 3])} lie above the core tier and are not kept",
            )
        )
    return Reading("Kubernetes Topology", Fabric(()), tuple(problems))
