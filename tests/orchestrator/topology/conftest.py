"""Text, and the shared files where they are there, as fabrics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.topology.combine import Combined
from orchestrator.topology.read import FabricFile, fabric_of, read_fabric
from orchestrator.topology.sources.content import content_of
from orchestrator.topology.sources.reading import InvalidFabricError

Read = Callable[..., Combined]
Refusal = Callable[..., str]


@pytest.fixture
def read() -> Read:
    """Texts by file name -> the fabric; the inside of a node is of the node the file is called after."""

    def reader(text: str | None = None, **texts: str) -> Combined:
        files = texts if text is None else {"file": text, **texts}
        return fabric_of([(content_of(body.encode(), file=name), (name,)) for name, body in files.items()])

    return reader


@pytest.fixture
def refusal() -> Refusal:
    """A text -> why it is refused."""

    def reader(text: str | bytes) -> str:
        data = text.encode() if isinstance(text, str) else text
        with pytest.raises(InvalidFabricError) as refused:
            fabric_of([(content_of(data, file="file"), ("node",))])
        return str(refused.value)

    return reader


@pytest.fixture
def shared(topology_data: Path) -> Read:
    """Files of the shared folder by path -> the fabric."""

    def reader(*names: str) -> Combined:
        return read_fabric([FabricFile.parse(str(topology_data / name)) for name in names])

    return reader


@pytest.fixture
def shared_refusal(topology_data: Path) -> Refusal:
    def reader(name: str) -> str:
        with pytest.raises(InvalidFabricError) as refused:
            read_fabric([FabricFile.parse(str(topology_data / name))])
        return str(refused.value)

    return reader
