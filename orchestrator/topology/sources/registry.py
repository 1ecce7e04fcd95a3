"""The formats, and which of them a file is: told by what is in it, never by its name.

A source is a module with `recognises(content)` and `read(content)`. Adding one is a line here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from orchestrator.topology.sources import (
    ibnetdiscover,
    kubernetes,
    nccl_xml,
    netq,
    nvidia_smi,
    ray_nodes,
    slurm_conf,
    slurm_yaml,
    topograph_json,
    topograph_model,
    yaml_file,
)
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.documents import Rows, Table, table_at
from orchestrator.topology.sources.reading import InvalidFabricError, Problem, Reading, listed

_OBJECT = re.compile(r'(?m)^[ \t]*"?apiVersion"?[ \t]*:')
MAX_PROBLEMS = 200
"""Problems of one file that are kept; a broken file of a large cluster has one a node."""


class Source(Protocol):
    """A module of this package that reads one format."""

    @property
    def recognises(self) -> Callable[[Content], bool]: ...
    @property
    def read(self) -> Callable[[Content], list[Reading]]: ...


FORMATS = (
    "Slurm topology.conf and topology.yaml, Topograph models and graph JSON, Kubernetes nodes, HyperNodes and "
    "Topologies, nvidia-smi topo -m and -L, NCCL topology XML, ibnetdiscover, NetQ, Ray nodes, Atoll fabric files"
)
TEXT_SOURCES: tuple[Source, ...] = (nccl_xml, ibnetdiscover, nvidia_smi, slurm_conf)
DOCUMENT_SOURCES: tuple[Source, ...] = (
    kubernetes,
    slurm_yaml,
    ray_nodes,
    netq,
    topograph_json,
    topograph_model,
    yaml_file,
)


def read_contents(contents: Sequence[Content]) -> list[tuple[str, Reading]]:
    """Every file's name and what was read. InvalidFabricError of the first that cannot be taken."""
    sources = [(source_of(content), content) for content in contents]
    together = kubernetes.read_together([content for source, content in sources if source is kubernetes])
    found: list[tuple[str, Reading]] = []
    for source, content in sources:
        if source is kubernetes:
            found += [(file, reading) for file, reading in together if file == content.file]
        else:
            found += [(content.file, reading) for reading in source.read(content)]
    return [(file, _limited(reading)) for file, reading in found]


def source_of(content: Content) -> Source:
    """The source that reads `content`. InvalidFabricError where none does."""
    if not _OBJECT.search(content.text):  # a ConfigMap may hold a topology.conf
        for source in TEXT_SOURCES:
            if source.recognises(content):
                return source
    try:
        for source in DOCUMENT_SOURCES:
            if source.recognises(content):
                return source
    except InvalidFabricError as error:
        raise content.refuse(f"{error.problems[0]}; it is none of {FORMATS}") from None
    raise content.refuse(f"{_described(content.document)}; it is none of {FORMATS}")


def _described(document: Any) -> str:
    """What a text is that no source knows."""
    if isinstance(document, Table):
        if table_at(document, "spec", "networkTopology"):
            return "is a piece of a Volcano job: it asks for a placement and describes no network"
        return f"is YAML with the keys {listed(list(document))}"
    if isinstance(document, Rows):
        return "is a list of things that are no nodes or topologies"
    return "is plain text"


def _limited(reading: Reading) -> Reading:
    more = len(reading.problems) - MAX_PROBLEMS
    if more <= 0:
        return reading
    kept = reading.problems[:MAX_PROBLEMS]
    rest = Problem(kept[0].file, None, f"{more} more problems of this file are not listed")
    return replace(reading, problems=(*kept, rest))
