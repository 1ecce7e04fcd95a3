"""`atoll plan --fabric`: the server's answer, made here for an empty fabric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atoll.answers import PlanAnswer
from atoll.errors import AtollError
from orchestrator.estimate.planned import planned
from orchestrator.estimate.questions import Question
from orchestrator.placement.room import Room
from orchestrator.spec import parse_spec
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError


class FabricFileError(AtollError):
    """A fabric file that cannot be taken."""


def fabric_of(path: Path) -> Fabric:
    """The fabric that a topology file of any known format describes."""
    try:
        return read_fabric([FabricFile.parse(str(path))]).fabric
    except InvalidFabricError as error:
        raise FabricFileError(str(error)) from None


def plan_on(fabric: Fabric, document: dict[str, Any], question: Question) -> PlanAnswer:
    """`document` is a checked job."""
    # Every node of a file counts as free, with all its CPUs.
    return PlanAnswer.model_validate(planned(parse_spec(document), fabric, Room(fabric.slots()), question))
