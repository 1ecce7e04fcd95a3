"""Slurm's topology.yaml: several topologies, each a tree, blocks, or flat. Specification: topology.yaml(5)."""

from __future__ import annotations

from collections import Counter

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Rows, Table, line_of, rows_at, table_at, text_at, texts
from orchestrator.topology.sources.hostlist import HostListError, expand_hosts
from orchestrator.topology.sources.reading import MAX_NODES, Problem, Reading, listed, shortened
from orchestrator.topology.sources.switch_tree import Switch, domains_by_node, is_no_switch

_PLUGINS = ("tree", "block", "flat", "ring", "torus3d")


def recognises(content: Content) -> bool:
    document = content.document
    return isinstance(document, Rows) and any(
        isinstance(item, Table) and "topology" in item for item in document
    )


def read(content: Content) -> list[Reading]:
    """One fabric; a switch name that two topologies use stands for two switches."""
    return [_File(content).reading()]


class _File:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._problems: list[Problem] = []
        self._violations: list[str] = []
        self._found: dict[str, dict[Tier, str]] = {}
        self._total = 0

    def reading(self) -> Reading:
        items = [item for item in self._content.document if isinstance(item, Table)]
        # The default topology first: where two place a node differently it counts.
        items.sort(key=lambda item: item.get("cluster_default") is not True)
        names = Counter(
            name
            for item in items
            for name in {
                *_names(item, "tree", "switches", "switch"),
                *_names(item, "block", "blocks", "block"),
            }
        )
        shared = {name for name, count in names.items() if count > 1}
        for item in items:
            self._topology(item, shared)
        if self._violations:
            raise self._content.refuse(*self._violations)
        if not self._found:
            raise self._content.refuse("names topologies and no node")
        unplaced = [node for node, domains in self._found.items() if not domains]
        if unplaced:
            self._note(
                None,
                f"no switch is known for {listed(unplaced)}: placed last, and never taken to be near others",
            )
        nodes = tuple(Node(name, 0, self._found[name]) for name in sorted(self._found, key=natural_key))
        return Reading("Slurm topology.yaml", Fabric(nodes), tuple(self._problems))

    def _topology(self, item: Table, shared: set[str]) -> None:
        name = text_at(item, "topology") or ""
        kinds = [plugin for plugin in _PLUGINS if item.get(plugin) not in (None, False)]
        if len(kinds) != 1:
            what = f"has {' and '.join(kinds)}" if kinds else f"has none of {', '.join(_PLUGINS)}"
            self._violations.append(
                f"line {item.line}: topology {shortened(name)!r} {what}; it must have one"
            )
            return
        if kinds[0] in ("ring", "torus3d"):
            self._note(item.line, f"topology {name} is a {kinds[0]}; only trees and blocks are read")
        own = {known: f"{name}/{known}" for known in shared}
        if kinds[0] == "tree":
            self._tree(item, own)
        elif kinds[0] == "block":
            self._blocks(item, own)

    def _tree(self, item: Table, own: dict[str, str]) -> None:
        rows = rows_at(item, "tree", "switches")
        switches = []
        for position, row in enumerate(rows):
            line = line_of(rows, position)
            name = text_at(row, "switch")
            if name is None:
                self._violations.append(f"line {line}: a switch has no name (key switch)")
                continue
            below = [own.get(child, child) for child in self._hosts(row, "children")]
            switches.append(Switch(own.get(name, name), line, below, self._hosts(row, "nodes")))
        found, problems = domains_by_node(self._content, switches)
        self._problems += problems
        for node, domains in found.items():
            self._place(node, domains, item.line)

    def _blocks(self, item: Table, own: dict[str, str]) -> None:
        rows = rows_at(item, "block", "blocks")
        for position, row in enumerate(rows):
            line = line_of(rows, position)
            name = text_at(row, "block")
            if name is None:
                self._violations.append(f"line {line}: a block has no name (key block)")
                continue
            domains = {} if is_no_switch(name) else {Tier.ISLAND: own.get(name, name)}
            for node in self._hosts(row, "nodes"):
                self._place(node, domains, line)

    def _place(self, node: str, domains: dict[Tier, str], line: int | None) -> None:
        known = self._found.setdefault(node, {})
        for tier, domain in domains.items():
            if known.setdefault(tier, domain) != domain:
                self._note(
                    line,
                    f"node {node} is in {tier.value} {known[tier]} and in {domain}; {known[tier]} counts",
                )

    def _hosts(self, row: Table, key: str) -> list[str]:
        try:
            hosts = [host for text in texts(table_at(row).get(key)) for host in expand_hosts(text)]
        except HostListError as error:
            self._violations.append(f"line {line_of(row, key)}: {error}")
            return []
        self._total += len(hosts)
        if self._total > 4 * MAX_NODES:
            raise self._content.refuse(f"line {line_of(row, key)}: more than {4 * MAX_NODES} names in all")
        return hosts

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _names(item: Table, plugin: str, rows: str, key: str) -> list[str]:
    return [name for row in rows_at(item, plugin, rows) if (name := text_at(row, key)) is not None]
