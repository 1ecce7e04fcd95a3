"""Readings of several files -> one fabric, and everything a person should know about it.

Declared sources (switches, labels, matrices) complete one another in the order given; inventories (Kubernetes, Slurm
node lines, Ray) say besides which nodes are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.merge import completed, merged_links
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.link_kinds import nvlink_of_model
from orchestrator.topology.sources.reading import Problem, Reading, counted, listed

LISTED_CONFLICTS = 20


@dataclass(frozen=True, slots=True)
class Named:
    """A reading and the file it comes from; `hosts` are the nodes that the inside of a node is told of."""

    file: str
    reading: Reading
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Combined:
    fabric: Fabric
    problems: tuple[Problem, ...] = ()
    facts: Mapping[str, int] = field(default_factory=dict)


def combine(sources: Sequence[Named]) -> Combined:
    """One fabric from all sources, nodes in natural order of their names."""
    problems = [problem for source in sources for problem in source.reading.problems]
    whole = [source for source in sources if not source.reading.inside]
    found: dict[str, Node] = {}
    origin: dict[str, str] = {}
    for source in whole:
        problems += _add(found, origin, source)
    for source in sources:
        if source.reading.inside:
            problems += _add_inside(found, origin, source, alone=not whole)
    problems += _presence(found, whole)
    links = merged_links(source.reading.fabric.links for source in sources)
    nodes = tuple(sorted(found.values(), key=lambda node: natural_key(node.name)))
    links = _refined(links, nodes)
    facts: defaultdict[str, int] = defaultdict(int)
    for source in sources:
        for name, count in source.reading.facts.items():
            facts[name] += count
    return Combined(Fabric(nodes, links), tuple(problems), dict(facts))


def _add(found: dict[str, Node], origin: dict[str, str], source: Named) -> list[Problem]:
    """Completes `found` by the nodes of `source`; contradictions are listed."""
    conflicts: list[str] = []
    for node in _renamed(found, source.reading.fabric.nodes):
        known = found.get(node.name)
        if known is None:
            found[node.name], origin[node.name] = node, source.file
        else:
            mine, theirs = f"in {origin[node.name]}", f"in {source.file}"
            found[node.name] = completed(known, node, conflicts, mine=mine, theirs=theirs)
    return [Problem(source.file, None, text) for text in _few(conflicts)]


def _few(conflicts: list[str]) -> list[str]:
    conflicts = sorted(conflicts, key=natural_key)
    more = len(conflicts) - LISTED_CONFLICTS
    return (
        conflicts if more <= 0 else [*conflicts[:LISTED_CONFLICTS], f"{more} more contradictions like these"]
    )


def _renamed(found: Mapping[str, Node], nodes: Sequence[Node]) -> list[Node]:
    """`nodes` with their domains named as in `found`, tier by tier, where both divide the nodes they share alike.

    Two tools give one switch two names; that is no contradiction.
    """
    renamed = list(nodes)
    for tier in SWITCH_TIERS:
        names = _same_domains(found, nodes, tier)
        if names:
            renamed = [_with_domain(node, tier, names) for node in renamed]
    return renamed


def _same_domains(found: Mapping[str, Node], nodes: Sequence[Node], tier: Tier) -> dict[str, str]:
    """Their name -> our name; empty where names agree already or the nodes are divided otherwise."""
    ours: defaultdict[str, set[str]] = defaultdict(set)
    theirs: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        known = found.get(node.name)
        mine, other = (known.domains.get(tier) if known else None), node.domains.get(tier)
        if mine is not None and other is not None:
            ours[other].add(mine)
            theirs[mine].add(other)
    alike = all(len(names) == 1 for names in (*ours.values(), *theirs.values()))
    pairs = {other: next(iter(names)) for other, names in ours.items()} if alike else {}
    return pairs if any(other != mine for other, mine in pairs.items()) else {}


def _with_domain(node: Node, tier: Tier, names: Mapping[str, str]) -> Node:
    domain = node.domains.get(tier)
    if domain is None or domain not in names:
        return node
    return replace(node, domains={**node.domains, tier: names[domain]})


def _add_inside(
    found: dict[str, Node], origin: dict[str, str], source: Named, *, alone: bool
) -> list[Problem]:
    """Tells the nodes `source.hosts` what the inside of a node looks like."""
    problems: list[Problem] = []
    conflicts: list[str] = []
    (inside,) = source.reading.fabric.nodes
    strangers = [host for host in source.hosts if host not in found]
    for host in source.hosts:
        node = named_inside(inside, host)
        known = found.get(host)
        if known is None:
            found[host], origin[host] = node, source.file
            continue
        if Tier.ISLAND in known.domains and Tier.ISLAND in node.domains:
            # A matrix shows one node: that its accelerators are joined does not say that the island ends there.
            node = replace(node, domains={})
        if Tier.ISLAND in known.domains and node.islands:
            conflicts.append(
                f"node {host}: {known.domains[Tier.ISLAND]} is one island for all its accelerators in "
                f"{origin[host]}, {counted(len(set(node.islands.values())), 'island')} in {source.file}; these count"
            )
            known = replace(known, domains={t: d for t, d in known.domains.items() if t is not Tier.ISLAND})
        found[host] = completed(known, node, conflicts, mine=f"in {origin[host]}", theirs=f"in {source.file}")
    if strangers and not alone:
        problems.append(
            Problem(
                source.file,
                None,
                f"describes {listed(strangers)}, which no other file names; NODES=FILE says which nodes it is of",
            )
        )
    return [*problems, *(Problem(source.file, None, text) for text in _few(conflicts))]


def _refined(links: dict[Tier, Link], nodes: Sequence[Node]) -> dict[Tier, Link]:
    """Links with the generation of NVLink, where the accelerators say it and the source did not."""
    link = links.get(Tier.ISLAND)
    if link is None or link.kind != "nvlink":
        return links
    kinds = {
        nvlink_of_model(node.accelerator) for node in nodes if node.islands or Tier.ISLAND in node.domains
    }
    (kind,) = kinds if len(kinds) == 1 else (None,)
    return links if kind is None else {**links, Tier.ISLAND: replace(link, kind=kind)}


def named_inside(inside: Node, name: str) -> Node:
    """A node of which only the inside is known, with its name; islands that cover it wholly become one domain."""
    labels = set(inside.islands.values())
    covers = len(labels) == 1 and len(inside.islands) == inside.accelerators
    if covers:
        return replace(inside, name=name, domains={Tier.ISLAND: name}, islands={})
    return replace(inside, name=name, islands={i: f"{name}/{label}" for i, label in inside.islands.items()})


def _presence(found: dict[str, Node], whole: Sequence[Named]) -> list[Problem]:
    """Marks nodes that are declared and not there; names them, and those that are there and in no declared source."""
    inventories = [source for source in whole if source.reading.inventory]
    declared = [source for source in whole if not source.reading.inventory and source.reading.fabric.nodes]
    if not inventories or not declared:
        return []
    there = {node.name for source in inventories for node in source.reading.fabric.nodes}
    problems = []
    files = " and ".join(source.file for source in inventories)
    for source in declared:
        absent = [node.name for node in source.reading.fabric.nodes if node.name not in there]
        absent = sorted((name for name in absent if found[name].alive), key=natural_key)
        for name in absent:
            found[name] = replace(found[name], alive=False)
        if absent:
            what = f"{counted(len(absent), 'node')} named here and not in {files}"
            problems.append(Problem(source.file, None, f"{what}, absent and given no work: {listed(absent)}"))
    known = {node.name for source in declared for node in source.reading.fabric.nodes}
    for source in inventories:
        unlisted = [n.name for n in source.reading.fabric.nodes if n.name not in known and n.accelerators]
        if unlisted:
            what = f"{counted(len(unlisted), 'node')} in no topology file, so placed last"
            problems.append(
                Problem(source.file, None, f"{what}: {listed(sorted(unlisted, key=natural_key))}")
            )
    return problems
