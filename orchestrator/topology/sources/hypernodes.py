"""Volcano's HyperNodes: a switch (or an accelerator domain) each, with Nodes or HyperNodes as members.

Specification: Volcano's API topology.volcano.sh/v1alpha1. Tier 1 is the nearest; a member is chosen by exact
name, by a regular expression (RE2), or by labels. Without an island tier of its own a HyperNode says nothing
of NVLink, so the lowest tier is the leaf, unless `tierName` says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Table, line_of, number_at, rows_at, table_at, text_at
from orchestrator.topology.sources.reading import Problem, Reading, listed, shortened
from orchestrator.topology.sources.switch_tree import Switch, domains_by_node

_ISLAND_NAMES = frozenset(
    {"island", "nvlink", "nvl", "nvl72", "nvlinkdomain", "nvlink-domain", "accelerator", "supernode"}
)
MAX_PATTERN = 200
MAX_COST = 50_000_000
"""Steps of matching one pattern with all names: a second or two."""
MAX_REPEATS = 3
"""Unbounded repeats of one pattern: Python's engine tries all splits of a name among them."""


def read_hypernodes(
    content: Content, items: Sequence[Table], labels: Mapping[str, Mapping[str, str]]
) -> Reading:
    """`labels` of the nodes that are known, for members chosen by label or pattern."""
    return _HyperNodes(content, items, labels).reading()


class _HyperNodes:
    def __init__(
        self, content: Content, items: Sequence[Table], labels: Mapping[str, Mapping[str, str]]
    ) -> None:
        self._content = content
        self._labels = labels
        self._problems: list[Problem] = []
        self._items = {
            name: item for item in items if (name := text_at(item, "metadata", "name")) is not None
        }
        if len(self._items) < len(items):
            raise content.refuse(
                f"line {items[0].line or '?'}: a HyperNode has no name of its own (metadata.name)"
            )

    def reading(self) -> Reading:
        islands: dict[str, str] = {}
        switches: list[Switch] = []
        for name, item in self._items.items():
            members = rows_at(item, "spec", "members")
            below: list[str] = []
            nodes: list[str] = []
            for position, member in enumerate(members):
                chosen = self._chosen(name, member, line_of(members, position))
                (below if text_at(member, "type") == "HyperNode" else nodes).extend(chosen)
            if (text_at(item, "spec", "tierName") or "").lower() in _ISLAND_NAMES:
                islands.update(dict.fromkeys(nodes, name))
            switches.append(Switch(name, item.line, below, nodes))
        self._check_tiers(switches)
        tree = [switch for switch in switches if not self._is_island(switch.name)]
        held = {switch.name: switch.nodes for switch in switches if self._is_island(switch.name)}
        for switch in tree:
            switch.nodes += [node for child in switch.switches for node in held.get(child, [])]
            switch.switches = [child for child in switch.switches if child not in held]
        domains, problems = domains_by_node(self._content, tree)
        self._problems += problems
        names = sorted({*domains, *islands}, key=natural_key)
        if not names:
            self._note(
                None,
                "HyperNodes choose no node that is known: give the nodes too (kubectl get nodes -o yaml)",
            )
        nodes_found = tuple(
            Node(
                name,
                0,
                dict(domains.get(name, {})) | ({Tier.ISLAND: islands[name]} if name in islands else {}),
            )
            for name in names
        )
        facts = {"HyperNodes": len(self._items)}
        return Reading("Volcano HyperNodes", Fabric(nodes_found), tuple(self._problems), facts=facts)

    def _is_island(self, name: str) -> bool:
        return (text_at(self._items.get(name), "spec", "tierName") or "").lower() in _ISLAND_NAMES

    def _chosen(self, name: str, member: object, line: int | None) -> list[str]:
        """Names that a member's selector chooses."""
        selector = table_at(member, "selector")
        exact = text_at(selector, "exactMatch", "name")
        if exact is not None:
            return [exact]
        known = list(self._items) if text_at(member, "type") == "HyperNode" else list(self._labels)
        pattern = text_at(selector, "regexMatch", "pattern")
        wanted = table_at(selector, "labelMatch", "matchLabels")
        if pattern is not None:
            found = self._matching(pattern, known, line)
        elif wanted or rows_at(selector, "labelMatch", "matchExpressions"):
            found = [node for node in known if self._has_labels(node, selector)]
        else:
            self._note(
                line, f"a member of {name} has no selector that is known (exactMatch, regexMatch, labelMatch)"
            )
            return []
        if not found:
            what = shortened(pattern or ", ".join(f"{key}={value}" for key, value in wanted.items()), 60)
            self._note(line, f"no known node matches {what!r}, a member of {name}: {name} is empty")
        return found

    def _matching(self, pattern: str, names: Sequence[str], line: int | None) -> list[str]:
        if not safe_pattern(pattern) or _cost(pattern, names) > MAX_COST:
            self._note(
                line,
                f"the pattern {shortened(pattern)!r} is not valid, or too intricate to be read: it chooses nothing",
            )
            return []
        compiled = re.compile(pattern)
        return [name for name in names if len(name) <= 253 and compiled.search(name)]

    def _has_labels(self, node: str, selector: Table) -> bool:
        labels = self._labels.get(node, {})
        wanted = table_at(selector, "labelMatch", "matchLabels")
        if any(labels.get(key) != value for key, value in wanted.items()):
            return False
        return all(
            _satisfies(labels, row)
            for row in rows_at(selector, "labelMatch", "matchExpressions")
            if isinstance(row, Table)
        )

    def _check_tiers(self, switches: Sequence[Switch]) -> None:
        tiers = {name: number_at(item, "spec", "tier") for name, item in self._items.items()}
        for switch in switches:
            own = tiers.get(switch.name)
            for child in switch.switches:
                below = tiers.get(child)
                if child not in tiers:
                    self._note(
                        switch.line,
                        f"{switch.name} has the member {child}, which is no HyperNode of these files",
                    )
                elif own is not None and below is not None and below >= own:
                    self._note(
                        switch.line,
                        f"{switch.name} is of tier {own} and its member {child} of tier {below}: it should be "
                        "lower; the members count",
                    )
        inside = {child for switch in switches for child in switch.switches}
        high = [name for name, tier in tiers.items() if tier is not None and tier > 1 and name not in inside]
        if len(high) > 1:
            self._note(None, f"no HyperNode joins {listed(sorted(high, key=natural_key))}: they stay apart")

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _cost(pattern: str, names: Sequence[str]) -> int:
    """Steps that Python's engine may take at worst: it tries every split of a name among the unbounded repeats."""
    power = len(_unbounded(pattern)) + 1
    return sum(min(len(name), 253) ** power for name in names)


def _unbounded(pattern: str) -> list[str]:
    repeats = re.findall(r"(?<!\\)(?:[*+]|\{\d*,?\d*\})", pattern)
    return [repeat for repeat in repeats if repeat in ("*", "+") or repeat.endswith(",}")]


def _satisfies(labels: Mapping[str, str], row: Table) -> bool:
    """A label selector's requirement (Kubernetes LabelSelectorRequirement)."""
    key, operator = text_at(row, "key") or "", text_at(row, "operator")
    values = [value for value in rows_at(row, "values") if isinstance(value, str)]
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    return (key in labels) is (operator == "Exists")


def safe_pattern(pattern: str) -> bool:
    """Whether Python's engine finds an end: no repeat around a repeat, few unbounded ones, no references."""
    if len(pattern) > MAX_PATTERN or pattern.count("|") > 32 or re.search(r"\\[1-9]|\(\?[P<=!]", pattern):
        return False
    repeats = re.findall(r"(?<!\\)(?:[*+]|\{\d*,?\d*\})", pattern)
    large = [number for repeat in repeats for number in re.findall(r"\d+", repeat) if len(number) > 2]
    if large or len(_unbounded(pattern)) > MAX_REPEATS or re.search(r"\)(?:[*+]|\{)", pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
