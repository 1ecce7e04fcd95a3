"""Who measures with whom: few rounds, each accelerator in one pair a round.

Tier by tier, nearest first. The units of a tier are the domains of the next nearer one (nodes, then leaves ...); those
of one domain play a round-robin tournament, all domains at once. A single round has one pair between two units, so that
no two pairs share a unit's uplink: the tier's bandwidth and latency. A loaded round has as many as the smaller unit has
nodes: what the uplinks carry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.names import natural_key

T = TypeVar("T")
WIDER_THAN_NODES: tuple[Tier, ...] = (Tier.LEAF, Tier.SPINE, Tier.CORE, Tier.ANY)


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    a: Slot
    b: Slot


@dataclass(frozen=True, slots=True)
class Round:
    tier: Tier
    """Nearest tier that the two of every pair share."""
    pairs: tuple[Pair, ...]
    loaded: bool = False
    """All pairs of two units at once; else one."""


def tournament(players: Sequence[T]) -> list[list[tuple[T, T]]]:
    """Rounds in which everybody meets everybody once, by the circle method: one stays, the others move on by a place.
    Of an odd number one rests in each round."""
    seats: list[T | None] = [*players, *([None] if len(players) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        met = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append([(a, b) for a, b in met if a is not None and b is not None])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def rounds_of(fabric: Fabric, ends: Mapping[str, Sequence[int]], most: int) -> list[Round]:
    """At most `most` single and as many loaded rounds a tier, evenly taken from all there are.

    `ends`: by node the accelerators that can measure; the first one measures with other nodes, the first two with each
    other. Nodes of `fabric` that are not in it are left out.
    """
    nodes = [node for node in fabric.nodes if ends.get(node.name)]
    found = _inside(nodes, ends)
    around = units_by_tier(nodes)
    for tier, wider in zip(list(around), [*list(around)[1:], None], strict=True):
        units = around[tier]
        domain_of = {units[name]: "any" if wider is None else around[wider][name] for name in units}
        found += _between(tier, _members(nodes, units), domain_of, ends, most)
    return found


def units_by_tier(nodes: Sequence[Node]) -> dict[Tier, dict[str, str]]:
    """By tier that joins nodes, nearest first: the unit of each node, which is its domain of the next nearer tier."""
    units: dict[Tier, dict[str, str]] = {}
    inside = {node.name: node.name for node in nodes}
    for tier in tiers_between(nodes):
        units[tier] = inside
        inside = {node.name: domain_at(node, tier, inside[node.name]) for node in nodes}
    return units


def tiers_between(nodes: Sequence[Node]) -> list[Tier]:
    """Tiers that join nodes, nearest first: islands among them where one spans several."""
    held: dict[str, set[str]] = {}
    for node in nodes:
        if (island := node.domains.get(Tier.ISLAND)) is not None:
            held.setdefault(island, set()).add(node.name)
    spans = any(len(names) > 1 for names in held.values())
    known = [t for t in WIDER_THAN_NODES[:-1] if any(t in node.domains for node in nodes)]
    return [*([Tier.ISLAND] if spans else []), *known, Tier.ANY]


def domain_at(node: Node, tier: Tier, nearer: str) -> str:
    """Domain of a node; where it is not known what surrounds its unit `nearer`, that unit stays alone."""
    if tier is Tier.ANY:
        return "any"
    domain = node.domains.get(tier)
    return f"{tier.value} {domain}" if domain is not None else nearer


def _inside(nodes: Sequence[Node], ends: Mapping[str, Sequence[int]]) -> list[Round]:
    """One round in which the first two accelerators of every node measure, by the tier that they share."""
    pairs: dict[Tier, list[Pair]] = {}
    for node in nodes:
        first, *others = ends[node.name]
        if others:
            pair = Pair(Slot(node.name, first), Slot(node.name, others[0]))
            islands = [
                node.islands.get(slot.index, node.domains.get(Tier.ISLAND)) for slot in (pair.a, pair.b)
            ]
            shared = islands[0] is not None and islands[0] == islands[1]
            pairs.setdefault(Tier.ISLAND if shared else Tier.NODE, []).append(pair)
    return [Round(tier, tuple(pairs[tier])) for tier in (Tier.ISLAND, Tier.NODE) if tier in pairs]


def _members(nodes: Sequence[Node], units: Mapping[str, str]) -> dict[str, list[str]]:
    """Nodes by unit, in natural order."""
    found: dict[str, list[str]] = {}
    for name in sorted((node.name for node in nodes), key=natural_key):
        found.setdefault(units[name], []).append(name)
    return found


def _between(
    tier: Tier,
    members: Mapping[str, Sequence[str]],
    around: Mapping[str, str],
    ends: Mapping[str, Sequence[int]],
    most: int,
) -> list[Round]:
    """Rounds among the units of each domain. `around`: domain of each unit."""
    domains: dict[str, list[str]] = {}
    for unit in sorted(members, key=natural_key):
        domains.setdefault(around[unit], []).append(unit)
    games = [tournament(units) for units in domains.values() if len(units) > 1]
    if not games:
        return []
    length = max(len(game) for game in games)
    widest = max(min(len(members[u]), len(members[v])) for game in games for met in game for u, v in met)
    single, loaded = [], []
    for number in evenly(length * widest, most):
        shift, at = divmod(number, length)
        met = [(members[u], members[v]) for game in games if at < len(game) for u, v in game[at]]
        ones = [(us[shift % len(us)], vs[shift % len(vs)]) for us, vs in met]
        single.append(_round(tier, ones, ends))
        if widest > 1:
            everybody = [pair for us, vs in met for pair in _everybody(us, vs, shift)]
            loaded.append(_round(tier, everybody, ends, loaded=True))
    return [*single, *loaded]


def _everybody(us: Sequence[str], vs: Sequence[str], shift: int) -> list[tuple[str, str]]:
    """Pairs of the members of two units, as many as the smaller has, others for each `shift`."""
    if len(us) > len(vs):
        return [(u, v) for v, u in _everybody(vs, us, shift)]
    return [(u, vs[(i + shift) % len(vs)]) for i, u in enumerate(us)]


def _round(
    tier: Tier,
    pairs: Sequence[tuple[str, str]],
    ends: Mapping[str, Sequence[int]],
    *,
    loaded: bool = False,
) -> Round:
    return Round(tier, tuple(Pair(Slot(a, ends[a][0]), Slot(b, ends[b][0])) for a, b in pairs), loaded)


def evenly(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread."""
    return list(range(count)) if count <= most else [i * count // most for i in range(most)]
