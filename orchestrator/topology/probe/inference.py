"""Leaves that nobody declared, from what pairs of nodes measure: near pairs are fast, all others are slow.

Told only where that is clear: the rates of pairs fall into two groups with a gap between them, near is an equivalence
(no slow pair among nodes that fast pairs join), and every two groups of nodes were seen to be apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.names import natural_key
from orchestrator.topology.probe.findings import Measurement

GAP = 1.5
"""Ratio of the slowest fast rate to the fastest slow one, at least: a switch tier without a bottleneck is none that
placement has to know."""
Rates = Mapping[tuple[str, str], float]
"""By two nodes, in natural order."""


def with_leaves(fabric: Fabric, measurements: Sequence[Measurement]) -> Fabric | None:
    """`fabric` with leaves `measured-0`, `measured-1` ... for the nodes without one; None where they are not clear."""
    unknown = {node.name for node in fabric.nodes if Tier.LEAF not in node.domains}
    leaves = leaves_of(rates_between(unknown, measurements))
    if leaves is None:
        return None
    names = {name: f"measured-{number}" for number, members in enumerate(leaves) for name in members}
    return Fabric(
        tuple(
            replace(node, domains={**node.domains, Tier.LEAF: names[node.name]})
            if node.name in names
            else node
            for node in fabric.nodes
        ),
        fabric.links,
    )


def rates_between(nodes: set[str], measurements: Sequence[Measurement]) -> Rates:
    """The fastest that every two of `nodes` were seen to be: what slowed them down at other times says nothing."""
    found: dict[tuple[str, str], float] = {}
    for m in measurements:
        a, b = sorted((m.pair.a.node, m.pair.b.node), key=natural_key)
        if m.error is None and a != b and {a, b} <= nodes:
            found[a, b] = max(found.get((a, b), 0.0), m.worse)
    return found


def leaves_of(rates: Rates) -> list[list[str]] | None:
    """Groups of nodes that are near each other, in natural order; None where the rates do not tell."""
    ordered = sorted(rates.values())
    gaps = [(faster / slower, faster) for slower, faster in pairwise(ordered) if slower > 0]
    gap, least = max(gaps, default=(0.0, 0.0))
    if gap < GAP:
        return None
    group = {name: name for pair in rates for name in pair}
    for (a, b), rate in rates.items():
        if rate >= least:
            old, new = group[a], group[b]
            group = {name: new if of == old else of for name, of in group.items()}
    members: dict[str, list[str]] = {}
    for name in sorted(group, key=natural_key):
        members.setdefault(group[name], []).append(name)
    groups = list(members.values())
    apart = {frozenset((group[a], group[b])) for (a, b), rate in rates.items() if rate < least}
    if any(len(pair) == 1 for pair in apart):
        return None
    if any(frozenset((group[u[0]], group[v[0]])) not in apart for u, v in combinations(groups, 2)):
        return None
    return groups
