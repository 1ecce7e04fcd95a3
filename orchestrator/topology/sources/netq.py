"""NetQ's topology graph (Ethernet, RoCE): switches by tier, hosts seen by LLDP, and the cables between.

And NetQ's list of compute nodes of NVLink domains (NMX). Format as in Topograph's NetQ provider: a list with
one graph, `nodes` grouped by tier, `links` with the ids of both ends and their number of cables (`size`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Rows, Table, line_of, number_at, rows_at, text_at
from orchestrator.topology.sources.node_labels import real_id
from orchestrator.topology.sources.reading import Problem, Reading, listed
from orchestrator.topology.sources.switch_graph import SwitchGraph, place_hosts


def recognises(content: Content) -> bool:
    document = content.document
    return any(isinstance(row, Table) and (_is_graph(row) or "DomainUUID" in row) for row in _rows(document))


def _rows(document: Any) -> Rows:
    if isinstance(document, Table) and _is_graph(document):
        rows = Rows(document.line)
        rows.append(document)
        return rows
    return document if isinstance(document, Rows) else Rows()


def _is_graph(row: Table) -> bool:
    return isinstance(row.get("links"), Rows) and isinstance(row.get("nodes"), Rows)


def read(content: Content) -> list[Reading]:
    rows = _rows(content.document)
    graphs = [row for row in rows if isinstance(row, Table) and _is_graph(row)]
    return [_graph(content, graph) for graph in graphs] or [_domains(content, rows)]


def _graph(content: Content, graph: Table) -> Reading:
    names: dict[str, str] = {}
    switches: dict[str, int | None] = {}
    for group in rows_at(graph, "nodes"):
        for entry in rows_at(group, "compounded_nodes") or _single(group):
            key = text_at(entry, "id")
            if key is None:
                continue
            names[key] = text_at(entry, "name") or key
            if text_at(entry, "device_type") == "switch":
                switches[key] = number_at(entry, "tier")
    if not names:
        raise content.refuse("is a NetQ graph without nodes")
    problems: list[Problem] = []
    neighbours: defaultdict[str, dict[str, int]] = defaultdict(dict)
    links = rows_at(graph, "links")
    for position, link in enumerate(links):
        ends = [end for end in (text_at(link, "src"), text_at(link, "target")) if end is not None]
        if len(ends) != 2 or any(end not in names for end in ends):
            problems.append(
                content.problem(line_of(links, position), f"a link between {listed(ends)} names no two nodes")
            )
            continue
        cables = number_at(link, "size") or 1
        for one, other in (ends, ends[::-1]):
            neighbours[one][other] = neighbours[one].get(other, 0) + cables
    hosts = {key: neighbours.get(key, {}) for key in names if key not in switches}
    return _placed(content, names, hosts, {key: neighbours.get(key, {}) for key in switches}, problems)


def _placed(
    content: Content,
    names: Mapping[str, str],
    hosts: Mapping[str, Mapping[str, int]],
    switches: Mapping[str, Mapping[str, int]],
    problems: list[Problem],
) -> Reading:
    if not hosts:
        raise content.refuse("is a NetQ graph without hosts")
    placed = place_hosts(
        SwitchGraph({key: set(hosts[key]) & set(switches) for key in hosts}, switches, names)
    )
    loose = [names[host] for host in hosts if Tier.LEAF not in placed.domains[host]]
    if loose:
        problems.append(content.problem(None, f"no switch is cabled to {listed(loose)}: placed last"))
    nodes = sorted(
        (Node(names[host], 0, placed.domains[host]) for host in hosts), key=lambda n: natural_key(n.name)
    )
    facts = {"leaf switches": placed.leaves, "switches above the leaves": placed.above}
    return Reading(
        "NetQ graph", Fabric(tuple(nodes)), (*problems, *_notes(content, placed.notes)), facts=facts
    )


def _notes(content: Content, notes: list[str]) -> list[Problem]:
    return [content.problem(None, note) for note in notes]


def _single(group: Any) -> Rows:
    rows = Rows()
    if isinstance(group, Table) and text_at(group, "node_type") == "device":
        rows.append(group)
    return rows


def _domains(content: Content, rows: Rows) -> Reading:
    """Compute nodes with the NVLink domain each is in, and its GPUs."""
    nodes: dict[str, Node] = {}
    problems: list[Problem] = []
    for position, row in enumerate(rows):
        name = text_at(row, "Name")
        if name is None:
            problems.append(
                content.problem(line_of(rows, position), "a compute node has no name and is left out")
            )
            continue
        domain = real_id(text_at(row, "DomainUUID") or "")
        gpus = len(rows_at(row, "GpuIDList"))
        nodes.setdefault(name, Node(name, gpus, {Tier.ISLAND: domain} if domain else {}))
        if text_at(row, "Health") not in (None, "HEALTHY"):
            problems.append(content.problem(line_of(rows, position), f"{name} is {text_at(row, 'Health')}"))
    if not nodes:
        raise content.refuse("names no compute node")
    ordered = tuple(sorted(nodes.values(), key=lambda node: natural_key(node.name)))
    return Reading("NetQ NVLink nodes", Fabric(ordered), tuple(problems))
