"""Kubernetes objects: Nodes, Volcano HyperNodes, Kueue and KAI Topologies, kind clusters, ConfigMaps with a
topology.conf.

All files of this kind are read together: a Topology says which labels of the Nodes are levels, a HyperNode
may choose Nodes by label or pattern. Specifications: Kubernetes API reference; Volcano
topology.volcano.sh/v1alpha1; Kueue kueue.x-k8s.io/v1beta1 and v1beta2; KAI kai.scheduler/v1alpha1; kind
kind.x-k8s.io/v1alpha4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.topology.sources import kubernetes_nodes, slurm_conf
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Table, rows_at, table_at, text_at
from orchestrator.topology.sources.hypernodes import read_hypernodes
from orchestrator.topology.sources.reading import Problem, Reading, listed

_NOT_NODES = "holds {kinds}: no node, HyperNode or Topology, so nothing of the network"


@dataclass(slots=True)
class Manifests:
    """The objects of one file that matter here, by kind."""

    content: Content
    nodes: list[Table] = field(default_factory=list)
    hypernodes: list[Table] = field(default_factory=list)
    topologies: list[Table] = field(default_factory=list)
    clusters: list[Table] = field(default_factory=list)
    confs: list[tuple[Table, str]] = field(default_factory=list)


def recognises(content: Content) -> bool:
    return any(
        isinstance(document, Table)
        and "kind" in document
        and ("apiVersion" in document or "metadata" in document)
        for document in content.documents
    )


def read_together(contents: Sequence[Content]) -> list[tuple[str, Reading]]:
    """Every file's readings. InvalidFabricError for a file of which no object says anything of the network."""
    files = [_sorted(content) for content in contents]
    levels = [
        (text_at(level, "nodeLabel") or "")
        for file in files
        for topology in file.topologies[:1]
        for level in rows_at(topology, "spec", "levels")
    ]
    labels = kubernetes_nodes.labels_by_node(node for file in files for node in file.nodes)
    found: list[tuple[str, Reading]] = []
    for file in files:
        found += [(file.content.file, reading) for reading in _readings(file, levels, labels)]
    return found


def read(content: Content) -> list[Reading]:
    return [reading for _, reading in read_together([content])]


def _objects(content: Content) -> Iterator[Table]:
    """Every object of a file; lists opened."""
    for document in content.documents:
        items: list[Any] = rows_at(document, "items") if isinstance(document, Table) else []
        kind = text_at(document, "kind") or ""
        if kind.endswith("List"):
            for item in items:
                if isinstance(item, Table):
                    item.setdefault("kind", kind.removesuffix("List"))  # a NodeList need not repeat it
                    yield item
        elif isinstance(document, Table):
            yield document


def _sorted(content: Content) -> Manifests:
    file = Manifests(content)
    others: list[str] = []
    for item in _objects(content):
        kind, version = text_at(item, "kind") or "", text_at(item, "apiVersion") or ""
        if kind == "Node":
            file.nodes.append(item)
        elif kind == "HyperNode":
            file.hypernodes.append(item)
        elif kind == "Topology":
            file.topologies.append(item)
        elif kind == "Cluster" and version.startswith("kind.x-k8s.io"):
            file.clusters.append(item)
        elif kind == "ConfigMap" and (texts := _confs(item)):
            file.confs += [(item, text) for text in texts]
        else:
            others.append(kind or "an object without a kind")
    if not (file.nodes or file.hypernodes or file.topologies or file.clusters or file.confs):
        kinds = listed(list(dict.fromkeys(others))) or "an empty list"
        raise content.refuse(_NOT_NODES.format(kinds=kinds))
    return file


def _confs(item: Table) -> list[str]:
    texts = [text for text in table_at(item, "data").values() if isinstance(text, str)]
    return [text for text in texts if slurm_conf.recognises(Content("", text))]


def _readings(file: Manifests, levels: list[str], labels: dict[str, dict[str, str]]) -> Iterator[Reading]:
    content = file.content
    if file.nodes:
        yield kubernetes_nodes.read_nodes(content, file.nodes, levels)
    for cluster in file.clusters:
        yield kubernetes_nodes.read_kind_cluster(content, cluster, levels)
    if file.hypernodes:
        yield read_hypernodes(content, file.hypernodes, labels)
    for item, text in file.confs:
        inner = Content(content.file, text)
        for reading in slurm_conf.read(inner):
            problems = tuple(
                Problem(content.file, item.line, problem.message) for problem in reading.problems
            )
            yield Reading("Slurm topology.conf in a ConfigMap", reading.fabric, problems, reading.inventory)
    for topology in file.topologies:
        yield kubernetes_nodes.read_topology(content, topology, has_nodes=bool(labels))
