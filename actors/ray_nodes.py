"""Nodes of the cluster as Ray lists them. Every call asks the head, and may hang as long as it does."""

from __future__ import annotations

from typing import Any

import ray


def nodes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def host_of(node: dict[str, Any]) -> str:
    """The name placements use: the host label, or the node's id where there is none."""
    return str(node["Labels"].get("host", node["NodeID"]))


def resources_by_host() -> dict[str, dict[str, float]]:
    """Resources of living nodes."""
    return {host_of(node): node["Resources"] for node in nodes() if node["Alive"]}


def lives(host: str) -> bool:
    return any(node["Alive"] and host_of(node) == host for node in nodes())
