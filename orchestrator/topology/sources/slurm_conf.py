"""Slurm's topology.conf (tree and block), the node lines of slurm.conf, and nodes as `scontrol show node` tells them.

Specification: topology.conf(5), slurm.conf(5) and Slurm's parse_config.c: keys in any case, `#` begins a
comment, a backslash at the end joins the next line, spaces may stand around `=`. A block is an accelerator
island (topology/block was made for NVL72 racks, and Topograph writes NVLink domains so); a switch a leaf,
spine or core.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.hostlist import HostListError, expand_hosts
from orchestrator.topology.sources.reading import MAX_NODES, Problem, Reading, counted, listed, shortened
from orchestrator.topology.sources.switch_tree import HEIGHTS, Switch, domains_by_node, is_no_switch

_KEY = re.compile(r"[ \t]*([A-Za-z][\w.]*)[ \t]*=")
_VALUE = re.compile(r'[ \t]*(?:"([^"]*)"|([^\s"]+))')
_KIND = re.compile(r"(?im)^[ \t]*(?:SwitchName|BlockName|RingName|NodeName)[ \t]*=")
_GPU = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?(?::(\d{1,4}))?(?=[,(\s]|$)")
_NONE = frozenset({"", "(null)", "none"})
_SHOWN = re.compile(r"(?i)NodeName=\S+ +(?:Arch=\S+ +CoresPerSocket=|CoresPerSocket=\d+ *(?:$|CPUAlloc=))")
"""The beginning of a record of `scontrol show node`: values with spaces and `#` in them, further lines indented."""
_NEXT_KEY = re.compile(r"\s[A-Za-z][\w.]*=")
_GONE = ("down", "fail", "future", "power_down", "powered_down", "powering_down", "not_responding")
_CLOSED = ("drain", "maint", "reboot", "reserved", "planned")
_GONE_MARKS, _CLOSED_MARKS = "*~!%", "$@^-"
"""Behind a state: not responding, power saved or going off; maintenance, reboot asked for or under way, planned."""


def recognises(content: Content) -> bool:
    return _KIND.search(content.text) is not None


def read(content: Content) -> list[Reading]:
    """Topology lines as a declared fabric, node lines as an inventory. InvalidFabricError for bad host lists."""
    return _File(content).readings()


@dataclass(slots=True)
class _Record:
    line: int
    values: Mapping[str, str]
    """By key in lower case."""


class _File:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._problems: list[Problem] = []
        self._violations: list[str] = []
        self._total = 0

    def readings(self) -> list[Reading]:
        records = list(self._records())
        switches = [self._switch(record) for record in records if record.values.get("switchname")]
        islands = self._blocks(records)
        blocks = {record.values["blockname"] for record in records if record.values.get("blockname")}
        listed_nodes = self._inventory(records, blocks)
        rings = {
            node
            for record in records
            if record.values.get("ringname")
            for node in self._hosts(record, "nodes")
        }
        if self._violations:
            raise self._content.refuse(*self._violations)
        domains, problems = domains_by_node(self._content, switches)
        self._problems += problems
        named = sorted({*domains, *islands, *rings}, key=natural_key)
        unplaced = [node for node in named if not domains.get(node) and node not in islands]
        if unplaced:
            lines = [switch.line for switch in switches if is_no_switch(switch.name)]
            self._note(
                lines[0] if lines else None,
                f"no switch is known for {listed(unplaced)}: placed last, and never taken to be near others",
            )
        if not named and not listed_nodes:
            raise self._content.refuse("names switches and no node")
        found = []
        if named:
            nodes = tuple(
                Node(node, 0, dict(domains.get(node, {})) | islands.get(node, {})) for node in named
            )
            found.append(Reading("Slurm topology.conf", Fabric(nodes), tuple(self._problems)))
        if listed_nodes:
            problems = [] if found else self._problems
            found.append(Reading("Slurm nodes", Fabric(listed_nodes), tuple(problems), inventory=True))
        return found

    def _records(self) -> Iterator[_Record]:
        joined, first = "", 0
        shown: tuple[int, str] | None = None
        for number, raw in enumerate(self._content.lines, start=1):
            if shown is not None and raw[:1].isspace() and raw.strip():
                shown = (shown[0], f"{shown[1]} {raw.strip()}")
                continue
            if shown is not None:
                yield _shown_record(*shown)
                shown = None
            if _SHOWN.match(raw):
                shown = (number, raw.strip())
                continue
            text = raw.split("#", 1)[0]
            first = first or number
            if text.rstrip().endswith("\\"):
                joined += text.rstrip()[:-1] + " "
                continue
            record = self._record(first, joined + text)
            joined, first = "", 0
            if record is not None:
                yield record
        if shown is not None:
            yield _shown_record(*shown)
        if joined.strip():
            self._violations.append(f"line {first}: ends with a backslash, so the file was cut off")

    def _record(self, line: int, text: str) -> _Record | None:
        values: dict[str, str] = {}
        at = 0
        while text[at:].strip():
            key = _KEY.match(text, at)
            if key is None:
                rest = shortened(text[at:].strip(), 40)
                self._note(line, f"{rest!r} is no KEY=VALUE; the rest of the line is not read")
                break
            at = key.end()
            value = _VALUE.match(text, at)
            # "Topology= CoreSpecCount=36": the next key is no value, so this one is empty.
            separate = value is not None and value.start(1 if value[2] is None else 2) > at
            if value is None or (separate and _KEY.match(text, at)):
                values.setdefault(key[1].lower(), "")
                continue
            values.setdefault(key[1].lower(), value[1] if value[2] is None else value[2])
            at = value.end()
        return _Record(line, values) if values else None

    def _switch(self, record: _Record) -> Switch:
        name = record.values["switchname"]
        if not {"switches", "nodes"} & record.values.keys():
            others = sorted(record.values.keys() - {"switchname"})
            keys = f"; keys there: {', '.join(others)}" if others else ""
            self._note(record.line, f"switch {name} has neither Nodes nor Switches{keys}")
        return Switch(name, record.line, self._hosts(record, "switches"), self._hosts(record, "nodes"))

    def _blocks(self, records: list[_Record]) -> dict[str, dict[Tier, str]]:
        found: dict[str, dict[Tier, str]] = {}
        sizes: list[tuple[_Record, str, int]] = []
        for record in records:
            name = record.values.get("blockname")
            if not name or is_no_switch(name):
                continue
            nodes = self._hosts(record, "nodes")
            sizes.append((record, name, len(nodes)))
            for node in nodes:
                known = found.setdefault(node, {Tier.ISLAND: name})[Tier.ISLAND]
                if known != name:
                    self._note(
                        record.line, f"node {node} is in block {known} and in block {name}; {known} counts"
                    )
        self._check_sizes(records, sizes)
        return found

    def _check_sizes(self, records: list[_Record], sizes: list[tuple[_Record, str, int]]) -> None:
        texts = [record.values["blocksizes"] for record in records if record.values.get("blocksizes")]
        first = texts[0].split(",")[0] if texts else ""
        base = int(first) if first.isascii() and first.isdecimal() and len(first) < 10 else 0
        for record, name, size in sizes:
            if size < base:
                self._note(
                    record.line,
                    f"block {name} has {counted(size, 'node')} and the smallest block size is {base}: Slurm starts no "
                    "job there that asks for whole blocks",
                )

    def _inventory(self, records: list[_Record], blocks: set[str]) -> tuple[Node, ...]:
        found: dict[str, Node] = {}
        defaults: Mapping[str, str] = {}
        for record in records:
            name = record.values.get("nodename")
            if not name:
                continue
            if name.upper() == "DEFAULT":
                defaults = record.values
                continue
            pattern = _node_of({**defaults, **record.values}, blocks)
            for host in self._hosts(record, "nodename"):
                found.setdefault(host, replace(pattern, name=host))
        return tuple(sorted(found.values(), key=lambda node: natural_key(node.name)))

    def _hosts(self, record: _Record, key: str) -> list[str]:
        text = record.values.get(key, "")
        if text.lower() in _NONE:
            return []
        try:
            hosts = expand_hosts(text)
        except HostListError as error:
            self._violations.append(f"line {record.line}: {error}")
            return []
        self._total += len(hosts)
        if self._total > 4 * MAX_NODES:
            raise self._content.refuse(f"line {record.line}: more than {4 * MAX_NODES} names in all")
        return hosts

    def _note(self, line: int | None, message: str) -> None:
        self._problems.append(self._content.problem(line, message))


def _domains(text: str, blocks: set[str]) -> dict[Tier, str]:
    """Of `Topology=TREE:ROOT:SPINE:LEAF,BLOCKS:BLOCK`, as nodes that are added while Slurm runs have it."""
    found: dict[Tier, str] = {}
    for one in text.split(","):
        units = [unit for unit in one.split(":")[1:] if unit and not is_no_switch(unit)]
        if len(units) == 1 and units[0] in blocks:
            found.setdefault(Tier.ISLAND, units[0])
        else:
            for tier, unit in zip(HEIGHTS, reversed(units), strict=False):
                found.setdefault(tier, unit)
    return found


def _shown_record(line: int, text: str) -> _Record:
    """A record of `scontrol show node`; a value goes on to the next key."""
    starts = [0, *(match.start() + 1 for match in _NEXT_KEY.finditer(text)), len(text)]
    parts = (text[start:end].partition("=") for start, end in pairwise(starts))
    return _Record(line, {key.strip().lower(): value.strip() for key, _, value in parts})


def _state(text: str) -> tuple[bool, bool]:
    """Whether a node in this state is there, and whether it takes jobs: `IDLE+CLOUD+POWERED_DOWN`, `DOWN*`.

    UNKNOWN is the state a configuration gives to nodes that it says nothing of.
    """
    marks = "".join(word.lstrip("abcdefghijklmnopqrstuvwxyz_") for word in text.lower().split("+"))
    words = [word.rstrip(_GONE_MARKS + _CLOSED_MARKS + "#") for word in text.lower().split("+")]
    gone = any(word.startswith(_GONE) for word in words) or any(mark in marks for mark in _GONE_MARKS)
    closed = any(word.startswith(_CLOSED) for word in words) or any(mark in marks for mark in _CLOSED_MARKS)
    return not gone, not closed


def _node_of(values: Mapping[str, str], blocks: set[str]) -> Node:
    gpus = [match for match in _GPU.finditer(values.get("gres", "")) if match[1] != "no_consume"]
    kinds = {match[1].upper() for match in gpus if match[1]}
    alive, schedulable = _state(values.get("state", "").split(" ", 1)[0])
    return Node(
        "",
        sum(int(match[2] or 1) for match in gpus),
        _domains(values.get("topology", ""), blocks),
        accelerator=kinds.pop() if len(kinds) == 1 else None,
        alive=alive,
        schedulable=schedulable,
    )
