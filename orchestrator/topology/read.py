"""Files -> one fabric: read each by its content, then combine them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.topology.combine import Combined, Named, combine
from orchestrator.topology.sources.content import Content, read_content
from orchestrator.topology.sources.hostlist import HostListError, expand_hosts
from orchestrator.topology.sources.reading import InvalidFabricError
from orchestrator.topology.sources.registry import read_contents


@dataclass(frozen=True, slots=True)
class FabricFile:
    path: Path
    hosts: tuple[str, ...]
    """Nodes it tells of when it describes the inside of one node: those given, else the one it is called after."""

    @classmethod
    def parse(cls, argument: str) -> FabricFile:
        """`FILE`, or `NODES=FILE` with a host list. InvalidFabricError for a bad host list."""
        before, equals, after = argument.partition("=")
        if equals and before and after and not _exists(argument):
            try:
                return cls(Path(after), tuple(expand_hosts(before)))
            except HostListError as error:
                raise InvalidFabricError(argument, [str(error)]) from None
        return cls(Path(argument), (Path(argument).name.split(".", 1)[0] or argument,))


def _exists(argument: str) -> bool:
    try:
        return Path(argument).exists()
    except OSError:  # a name longer than a file system takes
        return False


def read_fabric(files: Sequence[FabricFile]) -> Combined:
    """The fabric that `files` describe together. InvalidFabricError of the first that cannot be taken."""
    hosts: dict[Path, tuple[str, ...]] = {}
    for file in files:
        hosts[file.path] = (*hosts.get(file.path, ()), *file.hosts)
    return fabric_of([(read_content(path), names) for path, names in hosts.items()])


def fabric_of(contents: Sequence[tuple[Content, tuple[str, ...]]]) -> Combined:
    """The same for files already read, each with the nodes that the inside of a node is of."""
    hosts = {content.file: names for content, names in contents}
    readings = read_contents([content for content, _ in contents])
    return combine([Named(file, reading, hosts.get(file, ())) for file, reading in readings])
