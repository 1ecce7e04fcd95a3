"""A tree of switches -> the leaf, spine and core of each node.

A switch's tier is its height: one without switches below it is a leaf, one above leaves a spine, one above
spines a core. So branches of unequal depth still meet where they do in the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.spec.sections import Tier
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.reading import Problem, counted, listed

HEIGHTS: tuple[Tier, ...] = (Tier.LEAF, Tier.SPINE, Tier.CORE)
MAX_HEIGHT = 16
"""Switches on the way up from a node; real networks have at most five."""
NO_TOPOLOGY = frozenset({"no-topology", "notopology", "unknown", "none", "n/a", "null"})
"""Names that mean the opposite of a switch (Topograph writes `no-topology`): nodes below one share nothing."""


@dataclass(slots=True)
class Switch:
    name: str
    line: int | None = None
    switches: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


def is_no_switch(name: str) -> bool:
    return name.strip().lower() in NO_TOPOLOGY


def domains_by_node(
    content: Content, switches: Sequence[Switch]
) -> tuple[Mapping[str, dict[Tier, str]], list[Problem]]:
    """Domains of every node that a switch names. InvalidFabricError where switches lie below themselves."""
    tree = _Tree(content, switches)
    found = {node: tree.path(switch) for node, switch in tree.nearest().items()}
    return found, [*tree.problems, *tree.too_high()]


class _Tree:
    def __init__(self, content: Content, switches: Sequence[Switch]) -> None:
        self._content = content
        self.problems: list[Problem] = []
        self._switches: dict[str, Switch] = {}
        for switch in switches:
            self._add(switch)
        self._parent = self._parents()
        self._height = self._heights()

    def _add(self, switch: Switch) -> None:
        known = self._switches.get(switch.name)
        if known is None:
            self._switches[switch.name] = Switch(
                switch.name, switch.line, list(switch.switches), list(switch.nodes)
            )
            return
        self._note(
            switch.line, f"switch {switch.name} is declared twice; what both declare is taken together"
        )
        known.switches += switch.switches
        known.nodes += switch.nodes

    def _parents(self) -> dict[str, str]:
        parent: dict[str, str] = {}
        undeclared: dict[str, list[str]] = {}
        for switch in list(self._switches.values()):
            for child in switch.switches:
                if child not in self._switches:
                    self._switches[child] = Switch(child, switch.line)
                    undeclared.setdefault(switch.name, []).append(child)
                if parent.setdefault(child, switch.name) != switch.name:
                    self._note(
                        switch.line,
                        f"switch {child} is below {parent[child]} and below {switch.name}; a tree has one way up, so "
                        f"{parent[child]} counts",
                    )
        for name, children in undeclared.items():
            if not all(is_no_switch(child) for child in children):
                self._note(
                    self._switches[name].line,
                    f"switch {name} names {listed(children)}, which no line describes: no node is known below",
                )
        return parent

    def _heights(self) -> dict[str, int]:
        """0 for a switch with none below it, else one more than the highest below it. Peels the tree from below."""
        below = dict.fromkeys(self._switches, 0)
        for above in self._parent.values():
            below[above] += 1
        height = dict.fromkeys(self._switches, 0)
        ready = [name for name, count in below.items() if count == 0]
        for name in ready:
            up = self._parent.get(name)
            if up is not None:
                height[up] = max(height[up], height[name] + 1)
                below[up] -= 1
                if below[up] == 0:
                    ready.append(up)
        if max(height.values(), default=0) > MAX_HEIGHT:
            raise self._content.refuse(f"more than {MAX_HEIGHT} switches above one another")
        if len(ready) < len(self._switches):
            rest = [self._switches[name] for name, count in below.items() if count]
            where = f"line {rest[0].line}: " if rest[0].line else ""
            raise self._content.refuse(
                f"{where}switches lie below themselves: {listed([switch.name for switch in rest])}"
            )
        return height

    def nearest(self) -> dict[str, str]:
        """The lowest switch that names each node: a line for a higher one may sum up all nodes below it."""
        found: dict[str, str] = {}
        twice: dict[str, tuple[str, str, int | None]] = {}
        for switch in sorted(self._switches.values(), key=lambda switch: self._height[switch.name]):
            for node in switch.nodes:
                known = found.setdefault(node, switch.name)
                if known != switch.name and not self._is_above(switch.name, known):
                    twice.setdefault(node, (known, switch.name, switch.line))
        for node, (first, second, line) in list(twice.items())[:20]:
            self._note(line, f"node {node} is below {first} and below {second}; {first} counts")
        if len(twice) > 20:
            self._note(None, f"{len(twice) - 20} more nodes are below two switches; the first counts")
        return found

    def _is_above(self, above: str, name: str) -> bool:
        current: str | None = name
        while current is not None and current != above:
            current = self._parent.get(current)
        return current == above

    def path(self, switch: str) -> dict[Tier, str]:
        """Domains of a node right below `switch`."""
        if is_no_switch(switch):
            return {}
        found = {Tier.LEAF: switch}
        current: str | None = switch
        while current is not None:
            if self._height[current] < len(HEIGHTS):
                found[HEIGHTS[self._height[current]]] = current
            current = self._parent.get(current)
        return found

    def too_high(self) -> list[Problem]:
        lost = [switch for switch in self._switches.values() if self._height[switch.name] >= len(HEIGHTS)]
        if not lost:
            return []
        what = counted(len(lost), "switch lies", "switches lie")
        message = (
            f"{what} above the core tier ({listed([switch.name for switch in lost])}): three tiers are kept, "
            "so nodes of different cores count as equally far"
        )
        return [self._content.problem(lost[0].line, message)]

    def _note(self, line: int | None, message: str) -> None:
        self.problems.append(self._content.problem(line, message))
