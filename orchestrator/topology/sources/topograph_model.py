"""Topograph's model files: switches and blocks of nodes, in every shape they had since 2024.

Specification: Topograph docs/modeling.md and its history. Switches are a mapping or a list; nodes hang on a
switch by the switch's `nodes` or `capacity_blocks`, or by the block's `switch`; the accelerator domain of a
node is an annotation (`accelerator.topology.test/domain`), a label of Topograph, or an attribute `nvlink`, of
the block or of the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Rows, Table, line_of, text_at, texts
from orchestrator.topology.sources.hostlist import HostListError, expand_hosts
from orchestrator.topology.sources.node_labels import real_id
from orchestrator.topology.sources.reading import MAX_NODES, Problem, Reading, listed
from orchestrator.topology.sources.switch_tree import Switch, domains_by_node

_BLOCKS = ("blocks", "capacity_blocks")
_ISLAND_KEYS = (
    "accelerator.topology.test/domain",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
)


def recognises(content: Content) -> bool:
    document = content.document
    if not isinstance(document, Table):
        return False
    switches, blocks = document.get("switches"), [document.get(key) for key in _BLOCKS]
    return (isinstance(switches, Table | Rows) and not _is_graph(document)) or any(map(_is_blocks, blocks))


def _is_graph(document: Table) -> bool:
    return "instances" in document or "apiVersion" in document


def _is_blocks(value: object) -> bool:
    rows = list(value.values()) if isinstance(value, Table) else value if isinstance(value, Rows) else []
    return any(isinstance(row, Table) and "nodes" in row for row in rows)


def read(content: Content) -> list[Reading]:
    """InvalidFabricError for bad host lists, switches in a circle, and files without nodes."""
    return [_Model(content).reading()]


@dataclass(slots=True)
class _Entry:
    name: str | None
    table: Table
    line: int | None


class _Model:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._document: Table = content.document
        self._problems: list[Problem] = []
        self._violations: list[str] = []
        self._islands: dict[str, str] = {}
        self._kinds: dict[str, str] = {}
        self._total = 0

    def reading(self) -> Reading:
        switches = {
            entry.name: Switch(
                entry.name,
                entry.line,
                [
                    name
                    for text in texts(entry.table.get("switches"))
                    for name in self._names(text, entry.line)
                ],
                self._nodes(entry.table),
            )
            for entry in self._entries("switches")
            if entry.name is not None
        }
        blocks = [entry for key in _BLOCKS for entry in self._entries(key)]
        nodes = self._attach(switches, blocks)
        self._read_nodes()
        if self._violations:
            raise self._content.refuse(*self._violations)
        domains, problems = domains_by_node(self._content, list(switches.values()))
        self._problems += problems
        self._empty(switches)
        named = sorted({*domains, *nodes, *self._islands}, key=natural_key)
        if not named:
            raise self._content.refuse("names switches and no node")
        found = [
            Node(
                name,
                0,
                dict(domains.get(name, {}))
                | ({Tier.ISLAND: self._islands[name]} if name in self._islands else {}),
                accelerator=self._kinds.get(name),
            )
            for name in named
        ]
        if switches:
            loose = [node.name for node in found if Tier.LEAF not in node.domains]
            if loose:
                line = next(
                    (entry.line for entry in blocks if set(loose) & set(self._nodes(entry.table))), None
                )
                self._note(
                    line, f"no switch holds {listed(loose)}: placed last, and never taken to be near others"
                )
        return Reading("Topograph model", Fabric(tuple(found)), tuple(self._problems))

    def _entries(self, key: str) -> Iterator[_Entry]:
        """Mappings under `key`, a mapping by name or a list with the key `name`."""
        value = self._document.get(key)
        if isinstance(value, Table):
            for name, row in value.items():
                table = row if isinstance(row, Table) else Table(value.lines.get(name))
                yield _Entry(name, table, value.lines.get(name))
        elif isinstance(value, Rows):
            for position, row in enumerate(value):
                if isinstance(row, Table):
                    yield _Entry(text_at(row, "name"), row, line_of(value, position))

    def _attach(self, switches: dict[str, Switch], blocks: list[_Entry]) -> set[str]:
        """Hangs the nodes of blocks on their switches; all nodes of blocks."""
        known = {*switches, *(child for switch in switches.values() for child in switch.switches)}
        by_name = {entry.name: entry for entry in blocks if entry.name is not None}
        for entry in self._entries("switches"):
            if entry.name in switches:
                for block in texts(entry.table.get("capacity_blocks")):
                    if block in by_name:
                        switches[entry.name].nodes += self._nodes(by_name[block].table)
                    else:
                        self._note(
                            entry.line, f"switch {entry.name} holds the block {block}, which is not declared"
                        )
        found: set[str] = set()
        for entry in blocks:
            nodes = self._nodes(entry.table)
            found.update(nodes)
            self._describe(nodes, entry.table)
            switch = text_at(entry.table, "switch")
            if switch is None:
                continue
            if switch not in known:
                self._note(
                    entry.line,
                    f"a block of {len(nodes)} nodes is on the switch {switch}, which no switch names",
                )
            switches.setdefault(switch, Switch(switch, entry.line)).nodes += nodes
        return found

    def _describe(self, nodes: list[str], table: Table) -> None:
        island = _island(table)
        for node in nodes:
            if island is not None and self._islands.setdefault(node, island) != island:
                self._note(
                    table.line,
                    f"node {node} is in accelerator domain {self._islands[node]} and in {island}; "
                    f"{self._islands[node]} counts",
                )
            kind = text_at(table, "type")
            if kind is not None:
                self._kinds.setdefault(node, kind)

    def _read_nodes(self) -> None:
        """The `nodes` of 2026-05: name -> attributes."""
        for entry in self._entries("nodes"):
            if entry.name is not None:
                self._describe([entry.name], entry.table)

    def _empty(self, switches: dict[str, Switch]) -> None:
        held = {switch.name for switch in switches.values() if switch.switches or switch.nodes}
        named = {child: switch.line for switch in switches.values() for child in switch.switches}
        named |= {switch.name: switch.line for switch in switches.values()}
        empty = sorted((name for name in named if name not in held), key=natural_key)
        if empty:
            self._note(named[empty[0]], f"no node is below {listed(empty)}")

    def _nodes(self, table: Table) -> list[str]:
        nodes = table.get("nodes")
        found = [host for text in texts(nodes) for host in self._names(text, line_of(table, "nodes"))]
        return [*found, *nodes] if isinstance(nodes, Table) else found

    def _names(self, text: str, line: int | None) -> list[str]:
        try:
            hosts = expand_hosts(text)
        except HostListError as error:
            violation = f"line {line}: {error}"
            if violation not in self._violations:
                self._violations.append(violation)
            return []
        self._total += len(hosts)
        if self._total > 8 * MAX_NODES:
            raise self._content.refuse(f"line {line}: more than {8 * MAX_NODES} names in all")
        return hosts

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _island(table: Table) -> str | None:
    for section in ("annotations", "labels"):
        for key in _ISLAND_KEYS:
            value = text_at(table, section, key)
            if value is not None:
                return real_id(value)
    return real_id(text_at(table, "nvlink") or text_at(table, "attributes", "nvlink") or "")
