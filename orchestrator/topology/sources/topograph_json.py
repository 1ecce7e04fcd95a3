"""Topograph's JSON: the graph engine's output, and requests.

Specification: Topograph docs/engines/graph.md and docs/api.md. A request asks for a topology; the only nodes
it can hold are the instances it asks about. The chart's values are requests too.
"""

from __future__ import annotations

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Rows, Table, line_of, rows_at, table_at, text_at, texts
from orchestrator.topology.sources.node_labels import positions, real_name
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed, shortened
from orchestrator.topology.sources.switch_tree import HEIGHTS


def recognises(content: Content) -> bool:
    document = content.document
    if not isinstance(document, Table):
        return False
    return isinstance(document.get("instances"), Rows) or _is_request(document)


def _is_request(document: Table) -> bool:
    return any(
        isinstance(document.get(key), Table) and text_at(document, key, "name")
        for key in ("provider", "engine")
    )


def read(content: Content) -> list[Reading]:
    """InvalidFabricError for a request without nodes: it says what was asked for, not what is there."""
    document = content.document
    return [
        _graph(content, document)
        if isinstance(document.get("instances"), Rows)
        else _request(content, document)
    ]


def _graph(content: Content, document: Table) -> Reading:
    rows = rows_at(document, "instances")
    found: dict[str, dict[Tier, str]] = {}
    labels: list[dict[str, str]] = []
    problems: list[Problem] = []
    for position, row in enumerate(rows):
        line = line_of(rows, position)
        name = text_at(row, "id")
        if name is None:
            raise content.refuse(f"line {line or '?'}: an instance has no id")
        if name in found:
            problems.append(
                content.problem(line, f"instance {shortened(name)} is listed twice; the first counts")
            )
            continue
        layers = texts(row.get("network_layers"))
        found[name] = {
            tier: layer for tier, layer in zip(HEIGHTS, layers, strict=False) if real_name(layer) is not None
        }
        labels.append(
            {key: value for key, value in table_at(row, "labels").items() if isinstance(value, str)}
        )
        if len(layers) > len(HEIGHTS):
            problems.append(
                content.problem(
                    line, f"{name}: {listed(layers[len(HEIGHTS) :])} lie above the core tier and are not kept"
                )
            )
    if not found:
        raise content.refuse("names no instance")
    nodes = [
        Node(name, 0, dict(place.domains) | domains)
        for (name, domains), place in zip(found.items(), positions(labels), strict=True)
    ]
    loose = [node.name for node in nodes if Tier.LEAF not in node.domains]
    if loose:
        problems.append(
            content.problem(
                rows.line,
                f"no switch is known for {listed(loose)}: placed last, never taken to be near others",
            )
        )
    ordered = tuple(sorted(nodes, key=lambda node: natural_key(node.name)))
    return Reading("Topograph graph", Fabric(ordered), tuple(problems))


def _request(content: Content, document: Table) -> Reading:
    provider, engine = text_at(document, "provider", "name"), text_at(document, "engine", "name")
    model = text_at(document, "provider", "params", "modelFileName")
    asked = (
        f"asks Topograph (provider {provider or 'not said'}, engine {engine or 'not said'}) for a topology"
    )
    names = {
        node
        for region in rows_at(document, "nodes")
        for node in table_at(region, "instances").values()
        if isinstance(node, str)
    }
    if not names:
        what = f"give the model {model}, or" if model else "give"
        raise content.refuse(f"{asked} and holds none: no node is in it; {what} Topograph's answer")
    problem = content.problem(
        line_of(document, "nodes"),
        f"{asked} of {counted(len(names), 'node')} and says nothing of switches: placed last",
    )
    return Reading(
        "Topograph request",
        Fabric(tuple(Node(name, 0) for name in sorted(names, key=natural_key))),
        (problem,),
    )
