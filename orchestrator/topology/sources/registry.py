"""The formats, and which of them a file is: told by what is in it, never by its name.

A source is a module with `recognises(content)` and `read(content)`. Adding one is a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from orchestrator.topology.sources import slurm_conf, slurm_yaml, yaml_file
from orchestrator.topology.sources.content import Content
from orchestrator.topology.sources.reading import InvalidFabricError, Problem, Reading

MAX_PROBLEMS = 200
"""Problems of one file that are kept; a broken file of a large cluster has one a node."""


class Source(Protocol):
    """A module of this package that reads one format."""

    @property
    def recognises(self) -> Callable[[Content], bool]: ...
    @property
    def read(self) -> Callable[[Content], list[Reading]]: ...


FORMATS = (
    "Slurm topology.conf and topology.yaml, Topograph models and graph JSON, Kubernetes nodes, HyperNodes and Topologies, "
    "nvidia-smi topo -m and -L, NCCL topology XML, ibnetdiscover, NetQ, Ray nodes, Atoll fabric files"
)
TEXT_SOURCES: tuple[Source, ...] = (slurm_conf,)
DOCUMENT_SOURCES: tuple[Source, ...] = (slurm_yaml, yaml_file)


def read_contents(contents: Sequence[Content]) -> list[tuple[str, Reading]]:
    """Every file's name and what was read. InvalidFabricError of the first that cannot be taken."""
    return [
        (content.file, _limited(reading)) for content in contents for reading in source_of(content).read(content)
    ]


def source_of(content: Content) -> Source:
    """The source that reads `content`. InvalidFabricError where none does."""
    for source in TEXT_SOURCES:
        if source.recognises(content):
            return source
    try:
        for source in DOCUMENT_SOURCES:
            if source.recognises(content):
                return source
    except InvalidFabricError as error:
        raise content.refuse(f"{error.problems[0]}; and none of {FORMATS}") from None
    raise content.refuse(f"is none of {FORMATS}")


def _limited(reading: Reading) -> Reading:
    more = len(reading.problems) - MAX_PROBLEMS
    if more <= 0:
        return reading
    kept = reading.problems[:MAX_PROBLEMS]
    rest = Problem(kept[0].file, None, f"{more} more problems of this file are not listed")
    return replace(reading, problems=(*kept, rest))
