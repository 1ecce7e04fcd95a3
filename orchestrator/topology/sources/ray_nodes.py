"""Ray's nodes as a file: `ray.nodes()` as JSON, or `ray list nodes --detail --format=json` (or yaml)."""

from __future__ import annotations

from typing import Any

from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Rows, Table, rows_at, table_at, text_at
from orchestrator.topology.sources.node_labels import real_id, real_name
from orchestrator.topology.sources.ray_labels import fabric_from_ray_nodes
from orchestrator.topology.sources.reading import Problem, Reading, shortened

_TIERS = ("island", "leaf", "spine", "core")


def recognises(content: Content) -> bool:
    rows = _rows(content.document)
    return bool(rows) and all(
        isinstance(row, Table) and ("NodeID" in row or "node_id" in row) for row in rows
    )


def _rows(document: Any) -> Rows:
    if isinstance(document, Rows):
        return document
    nested = rows_at(document, "result")
    return nested or rows_at(document, "data", "result", "result")


def read(content: Content) -> list[Reading]:
    problems: list[Problem] = []
    entries = []
    for row in _rows(content.document):
        labels = _labels(content, row, problems)
        resources = table_at(row, "Resources") or table_at(row, "resources_total")
        entries.append(
            {
                "NodeID": text_at(row, "NodeID") or text_at(row, "node_id") or "",
                "Alive": row.get("Alive") is True or row.get("alive") is True or row.get("state") == "ALIVE",
                "Labels": labels,
                "Resources": {name: _number(value) for name, value in resources.items()},
            }
        )
    fabric = fabric_from_ray_nodes(entries)
    return [Reading("Ray nodes", fabric, tuple(problems), inventory=True)]


def _labels(content: Content, row: Table, problems: list[Problem]) -> dict[str, str]:
    found = {}
    table = table_at(row, "Labels") or table_at(row, "labels")
    for key, value in table.items():
        if not isinstance(value, str):
            continue
        real = real_id(value) if key == "island" else real_name(value)
        if key in _TIERS and real is None:
            message = f"the label {key}={shortened(value)!r} names nothing: {key} is unknown there"
            problems.append(content.problem(table.lines.get(key), message))
            continue
        found[key] = value
    return found


def _number(value: Any) -> float:
    """A resource; 0 for what is no number a cluster can have."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if 0 <= number < 1e15 else 0.0
