"""A graph of switches and hosts -> leaf, spine and core domains.

Switches with hosts are leaves. A host with several adapters is cabled to several leaves, one a rail; leaves
that share hosts are one *leaf domain*: below it no spine is crossed. Switches next to leaves are spines,
those next to spines cores; two leaf domains with a spine in common are one spine domain, and so on. Domains
that no switch joins stay apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from orchestrator.spec.sections import Tier
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.reading import counted, listed


@dataclass(frozen=True, slots=True)
class SwitchGraph:
    hosts: Mapping[str, AbstractSet[str]]
    """Host -> switches it is cabled to."""
    switches: Mapping[str, Mapping[str, int]]
    """Switch -> neighbour -> cables; neighbours may be hosts."""
    names: Mapping[str, str]
    """Id -> name for people."""


@dataclass(slots=True)
class PlacedHosts:
    domains: dict[str, dict[Tier, str]]
    leaves: int
    above: int
    uplinks: dict[str, int]
    """Leaf domain -> cables to switches above it."""
    notes: list[str] = field(default_factory=list)


def place_hosts(graph: SwitchGraph) -> PlacedHosts:
    """Domains per host; a host without a cable has none."""
    leaves = _leaves(graph)
    level = dict.fromkeys(leaves, 0)
    order = sorted(leaves)
    for switch in order:
        for other in graph.switches.get(switch, {}):
            if other in graph.switches and other not in level:
                level[other] = level[switch] + 1
                order.append(other)
    homes = {host: (switches & leaves) or switches for host, switches in graph.hosts.items()}
    groups = _joined(leaves, [switches for switches in homes.values() if switches <= leaves])
    names = {leaf: _group_name(graph, members) for leaf, members in groups.items()}
    domains: dict[str, dict[Tier, str]] = {
        host: {Tier.LEAF: names.get(min(switches)) or _group_name(graph, switches)} if switches else {}
        for host, switches in homes.items()
    }
    below = groups
    for height, tier in ((1, Tier.SPINE), (2, Tier.CORE)):
        here = {switch for switch, found in level.items() if found == height}
        if not here:
            break
        below = _tier(graph, homes, level, domains, below, height, tier)
    placed = PlacedHosts(
        domains, len(leaves), len(graph.switches) - len(leaves), _uplinks(graph, leaves, names)
    )
    too_high = [graph.names.get(switch, switch) for switch, found in level.items() if found > 2]
    if too_high:
        placed.notes.append(
            f"{listed(sorted(too_high, key=natural_key))} lie above the core tier and are not kept"
        )
    stray = [graph.names.get(switch, switch) for switch in graph.switches if switch not in level]
    if stray:
        what = counted(len(stray), "switch is", "switches are")
        placed.notes.append(f"{what} joined to no host: {listed(sorted(stray, key=natural_key))}")
    return placed


def _leaves(graph: SwitchGraph) -> set[str]:
    """Switches with hosts, but for those with more cables to such switches: spines that hold a manager."""
    hosts: defaultdict[str, int] = defaultdict(int)
    for switches in graph.hosts.values():
        for switch in switches:
            hosts[switch] += 1
    # A host with several cables to one switch counts once: what matters is which of the two is far larger.
    across = {
        switch: sum(cables for other, cables in graph.switches.get(switch, {}).items() if other in hosts)
        for switch in hosts
    }
    leaves = {switch for switch, count in hosts.items() if across[switch] <= count}
    return leaves or set(hosts)


def _tier(
    graph: SwitchGraph,
    homes: Mapping[str, AbstractSet[str]],
    level: Mapping[str, int],
    domains: dict[str, dict[Tier, str]],
    below: Mapping[str, list[str]],
    height: int,
    tier: Tier,
) -> dict[str, list[str]]:
    """Gives every host its domain at `tier`; switch below or here -> all switches of its domain."""
    here = {switch for switch, found in level.items() if found == height}
    cabled = [
        {switch, *(other for other in graph.switches.get(switch, {}) if other in below)}
        for switch in sorted(here)
    ]
    groups = _joined({*below, *here}, [*cabled, *map(set, below.values())])
    for host, switches in homes.items():
        if switches and min(switches) in groups:
            members = [switch for switch in groups[min(switches)] if switch in here]
            if members:
                domains[host][tier] = _group_name(graph, members)
    return groups


def _joined(items: Iterable[str], sets: Iterable[AbstractSet[str]]) -> dict[str, list[str]]:
    """Item -> all items that a chain of `sets` joins it with."""
    parent = {item: item for item in items}

    def root(item: str) -> str:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for joined in sets:
        first, *rest = sorted(joined) or [""]
        for item in rest:
            parent[root(item)] = root(first)
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for item in parent:
        groups[root(item)].append(item)
    return {item: members for members in groups.values() for item in members}


def _group_name(graph: SwitchGraph, members: Iterable[str]) -> str:
    """The first switch's name, and how many more there are; ids where names are not unique."""
    ids = list(members)
    ordered = sorted(ids, key=lambda switch: natural_key(graph.names.get(switch, switch)))
    first = graph.names.get(ordered[0], ordered[0])
    return first if len(ordered) == 1 else f"{first}+{len(ordered) - 1}"


def _uplinks(graph: SwitchGraph, leaves: AbstractSet[str], names: Mapping[str, str]) -> dict[str, int]:
    found: defaultdict[str, int] = defaultdict(int)
    for leaf in leaves:
        for other, cables in graph.switches.get(leaf, {}).items():
            if other in graph.switches and other not in leaves:
                found[names[leaf]] += cables
    return dict(found)
