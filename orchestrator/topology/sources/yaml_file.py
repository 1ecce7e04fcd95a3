"""Fabric from a YAML file: what cabling knows and labels do not say.

    nodes:
      - name: n[0-15]          # one node, or a range: n0 ... n15
        accelerators: 8        # may be left out where another source knows the number
        accelerator: H100
        island: "{name}"       # {name} stands for the name of the node: here every node is an island of its own
        leaf: l0
        spine: s0
        core: c0
      - name: old
        accelerators: 4
        islands:               # smaller than the node: island -> accelerator indexes; names count within the node
          a: [0, 1]
          b: [2, 3]
        schedulable: false
        suspect: true          # its links are bad: used last
    links:                     # what joins accelerators whose nearest common tier is this one, as far as known
      leaf: {kind: ib-ndr, bandwidth_bytes_per_s: 48.0e+9, latency_s: 8.0e-6, uplink_bytes_per_s: 384.0e+9}

A tier that is left out is unknown; it is completed by other sources (`merge`) and else matches nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.spec.document import read_document
from orchestrator.spec.sections import Tier
from orchestrator.spec.sentences import field_sentence
from orchestrator.spec.values import Values
from orchestrator.spec.violations import InvalidSpecError
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Table
from orchestrator.topology.sources.reading import MAX_NODES, Reading
from orchestrator.topology.sources.reading import InvalidFabricError as InvalidFabricError

MAX_CHARACTERS = 1 << 22
MAX_VALUES = 1_000_000
_RANGE = re.compile(r"([^\[\]]*)\[(\d{1,7})-(\d{1,7})\]([^\[\]]*)")
_NAME = r"^[A-Za-z0-9{]([A-Za-z0-9._{}-]*[A-Za-z0-9}])?$"

_Index = Annotated[int, Field(ge=0, le=1023)]
_Rate = Annotated[float, Field(gt=0, le=1e15)]
Name = Annotated[str, Field(min_length=1, max_length=63, pattern=_NAME)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=80)]
    accelerators: Annotated[int, Field(ge=0, le=1024)] = 0
    accelerator: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    island: Name | None = None
    leaf: Name | None = None
    spine: Name | None = None
    core: Name | None = None
    islands: dict[Name, list[_Index]] = {}
    weak_pairs: list[tuple[_Index, _Index]] = []
    partitioned: list[_Index] = []
    schedulable: bool = True
    suspect: bool = False


class _Link(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    bandwidth_bytes_per_s: _Rate | None = None
    latency_s: Annotated[float, Field(gt=0, le=60)] | None = None
    uplink_bytes_per_s: _Rate | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: list[_Entry]
    links: dict[Tier, _Link] = {}


def recognises(content: Content) -> bool:
    """A mapping with the key `nodes` that is nothing else: the last format to be tried."""
    document = content.document
    return isinstance(document, Table) and "nodes" in document


def read(content: Content) -> list[Reading]:
    return [Reading("Atoll fabric", fabric_from_yaml(content.text, origin=content.file))]


def read_fabric_file(path: Path) -> Fabric:
    """The fabric in a file. InvalidFabricError, also for a file that cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)  # one more than is taken
    except OSError as error:
        raise InvalidFabricError(str(path), [f"cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise InvalidFabricError(str(path), ["is no UTF-8 text"]) from None
    return fabric_from_yaml(text, origin=str(path))


def fabric_from_yaml(text: str, *, origin: str) -> Fabric:
    """The fabric in `text`; `origin` names the file in sentences. InvalidFabricError lists every violation."""
    try:
        document = read_document(text, origin=origin, max_characters=MAX_CHARACTERS)
    except InvalidSpecError as error:
        problem = error.violations[0].message.removeprefix(f"{origin}: ")
        raise InvalidFabricError(origin, [problem]) from None
    if not isinstance(document, dict):
        raise InvalidFabricError(origin, ["a fabric file is a mapping with the key nodes, a list of nodes"])
    values = Values(document, max_values=MAX_VALUES)
    if values.too_many or values.violations:
        problems = [f"{violation.field}: {violation.message}" for violation in values.violations]
        raise InvalidFabricError(
            origin, problems or [f"more than {MAX_VALUES} values, aliases counted each time"]
        )
    try:
        file = _File.model_validate_json(json.dumps(values.clean))
    except ValidationError as error:
        raise InvalidFabricError(origin, [field_sentence(detail) for detail in error.errors()]) from None
    problems = []
    nodes: dict[str, Node] = {}
    for position, entry in enumerate(file.nodes):
        where = f"nodes.{position}"
        problems += _problems(where, entry)
        if len(nodes) + _size(entry.name) > MAX_NODES:
            raise InvalidFabricError(origin, [*problems, f"{where}.name: more than {MAX_NODES} nodes"])
        for name in _expand(entry.name):
            if name in nodes:
                problems.append(f"{where}.name: the node {name} is declared twice")
            nodes[name] = _node(name, entry)
    if problems:
        raise InvalidFabricError(origin, problems)
    links = {tier: _link(link) for tier, link in file.links.items()}
    return Fabric(tuple(sorted(nodes.values(), key=lambda node: natural_key(node.name))), links)


def _link(link: _Link) -> Link:
    return Link(link.kind, link.bandwidth_bytes_per_s, link.latency_s, link.uplink_bytes_per_s)


def _size(name: str) -> int:
    """Names that `name` stands for."""
    found = _RANGE.fullmatch(name)
    return 1 if found is None else int(found[3]) - int(found[2]) + 1


def _expand(name: str) -> Iterator[str]:
    """`n[0-3]` -> n0 n1 n2 n3; leading zeros of the first number set the width. Other names stand for themselves."""
    found = _RANGE.fullmatch(name)
    if found is None:
        yield name
        return
    before, first, last, after = found.groups()
    width = len(first) if first.startswith("0") else 1
    for number in range(int(first), int(last) + 1):
        yield f"{before}{number:0{width}d}{after}"


def _problems(where: str, entry: _Entry) -> Iterator[str]:
    found = _RANGE.fullmatch(entry.name)
    if found is None and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", entry.name):
        yield f"{where}.name: {entry.name!r} is neither a node name (letters, digits, - _ .) nor a range like n[0-7]"
    if found is not None and int(found[2]) > int(found[3]):
        yield f"{where}.name: the range {entry.name} is empty; the first number must not be larger than the last"
    holder: dict[int, str] = {}
    for island, indexes in entry.islands.items():
        for index in sorted(set(indexes)):
            if entry.accelerators and index >= entry.accelerators:
                last = entry.accelerators - 1
                yield f"{where}.islands.{island}: accelerator {index} is not there; the node has 0 to {last}"
            if holder.setdefault(index, island) != island or indexes.count(index) > 1:
                yield f"{where}.islands.{island}: accelerator {index} is named twice"
    for a, b in entry.weak_pairs:
        if a >= b or (entry.accelerators and b >= entry.accelerators):
            yield f"{where}.weak_pairs: [{a}, {b}] is no pair of the node's accelerators, lower index first"
    for index in entry.partitioned:
        if entry.accelerators and index >= entry.accelerators:
            yield f"{where}.partitioned: accelerator {index} is not there; the node has {entry.accelerators}"


def _node(name: str, entry: _Entry) -> Node:
    def named(value: str) -> str:
        return value.replace("{name}", name)

    labels = {tier: getattr(entry, tier.value) for tier in SWITCH_TIERS}
    return Node(
        name=name,
        accelerators=entry.accelerators,
        domains={tier: named(label) for tier, label in labels.items() if label is not None},
        islands={
            index: f"{name}/{named(island)}" for island, indexes in entry.islands.items() for index in indexes
        },
        accelerator=entry.accelerator,
        schedulable=entry.schedulable,
        suspect=entry.suspect,
        weak_pairs=frozenset(entry.weak_pairs),
        partitioned=frozenset(entry.partitioned),
    )
