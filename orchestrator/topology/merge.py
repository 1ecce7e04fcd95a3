"""Several sources, one fabric: what is unknown is completed, what contradicts is listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key


@dataclass(frozen=True, slots=True)
class MergedFabric:
    fabric: Fabric
    conflicts: tuple[str, ...] = ()
    """One sentence a contradiction, by node; says which value counts."""


def merge(primary: Fabric, *others: Fabric) -> MergedFabric:
    """`primary` (what somebody declared: a fabric file) completed by `others` (what was observed: Ray), in that order.

    - A tier, island or accelerator type unknown to `primary` is taken from the first of `others` that knows it; where
      two know different ones, the earlier counts and the contradiction is listed.
    - A node is alive (and schedulable) only if every source says so: one that `others` do not know at all was declared
      and is not there, so it is not alive. A node that `primary` does not name is taken as observed.
    - Of two numbers of accelerators the smaller counts: what one source does not know cannot be used. 0 is unknown.
    """
    conflicts: list[str] = []
    found = {node.name: node for node in primary.nodes}
    for other in others:
        for node in other.nodes:
            known = found.get(node.name)
            found[node.name] = node if known is None else completed(known, node, conflicts)
    if others:
        seen = {node.name for other in others for node in other.nodes}
        found = {name: node if name in seen else replace(node, alive=False) for name, node in found.items()}
    nodes = sorted(found.values(), key=lambda node: natural_key(node.name))
    links = merged_links([primary.links, *(other.links for other in others)])
    return MergedFabric(Fabric(tuple(nodes), links), tuple(sorted(conflicts, key=natural_key)))


def merged_links(sources: Iterable[Mapping[Tier, Link]]) -> dict[Tier, Link]:
    """Links per tier, field by field what the first source knows."""
    found: dict[Tier, Link] = {}
    for links in sources:
        for tier, link in links.items():
            mine = found.get(tier, Link())
            found[tier] = Link(
                kind=link.kind if mine.kind is None else mine.kind,
                bandwidth=link.bandwidth if mine.bandwidth is None else mine.bandwidth,
                measured=link.measured if mine.bandwidth is None else mine.measured,
                latency_s=link.latency_s if mine.latency_s is None else mine.latency_s,
                uplink=link.uplink if mine.uplink is None else mine.uplink,
            )
    return found


_V = TypeVar("_V", str, int)


def completed(
    node: Node, other: Node, conflicts: list[str], *, mine: str = "declared", theirs: str = "reported"
) -> Node:
    """`node` with what only `other` knows; contradictions go to `conflicts`, which say whose value is whose."""

    def one(what: str, value: _V | None, other_value: _V | None) -> _V | None:
        if value is not None and other_value is not None and value != other_value:
            conflicts.append(
                f"node {node.name}: {what} {value} {mine}, {other_value} {theirs}; {value} counts"
            )
        return other_value if value is None else value

    domains: dict[Tier, str] = {}
    for tier in SWITCH_TIERS:
        value = one(tier.value, node.domains.get(tier), other.domains.get(tier))
        if value is not None:
            domains[tier] = value
    islands = {
        index: island
        for index in sorted({*node.islands, *other.islands})
        if (
            island := one(f"island of accelerator {index}", node.islands.get(index), other.islands.get(index))
        )
    }
    return Node(
        name=node.name,
        accelerators=_fewer(node, other, conflicts, mine, theirs),
        domains=domains,
        islands=_declared_over(node, other, islands),
        accelerator=one("accelerator type", node.accelerator, other.accelerator),
        alive=node.alive and other.alive,
        schedulable=node.schedulable and other.schedulable,
        suspect=node.suspect or other.suspect,
        cpus=other.cpus if node.cpus is None else node.cpus,
        rails={**other.rails, **node.rails},
        weak_pairs=node.weak_pairs | other.weak_pairs,
        partitioned=node.partitioned | other.partitioned,
    )


def _declared_over(node: Node, other: Node, islands: Mapping[int, str]) -> Mapping[int, str]:
    """Islands by accelerator, without those of `other` where `node` declares one island for all its accelerators."""
    if Tier.ISLAND not in node.domains:
        return islands
    return {
        index: island
        for index, island in islands.items()
        if index in node.islands or index not in other.islands
    }


def _fewer(node: Node, other: Node, conflicts: list[str], mine: str, theirs: str) -> int:
    if 0 in (node.accelerators, other.accelerators) or node.accelerators == other.accelerators:
        return max(node.accelerators, other.accelerators)
    fewer = min(node.accelerators, other.accelerators)
    conflicts.append(
        f"node {node.name}: {node.accelerators} accelerators {mine}, {other.accelerators} {theirs}; {fewer} count"
    )
    return fewer
