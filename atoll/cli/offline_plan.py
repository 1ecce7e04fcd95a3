"""`atoll plan --fabric`: the server's answer, made here for an empty fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.answers import PlanAnswer
from atoll.errors import AtollError
from orchestrator.estimate.planned import planned
from orchestrator.estimate.questions import Question
from orchestrator.placement.room import Room
from orchestrator.spec import parse_spec
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.read import FabricFile, read_fabric
from orchestrator.topology.sources.reading import InvalidFabricError, counted


class FabricFileError(AtollError):
    """A fabric file that cannot be taken."""


def fabric_of(files: Sequence[str]) -> Fabric:
    """The fabric that topology files of any known format describe together. FabricFileError when one cannot be taken,
    or when none says how many accelerators a node has."""
    try:
        fabric = read_fabric([FabricFile.parse(file) for file in files]).fabric
    except InvalidFabricError as error:
        raise FabricFileError(str(error)) from None
    if not any(node.accelerators for node in fabric.nodes):
        raise FabricFileError(_without_accelerators(files, len(fabric.nodes)))
    return fabric


def _without_accelerators(files: Sequence[str], nodes: int) -> str:
    verb = "states" if len(files) == 1 else "state"
    return (
        f"{', '.join(files)} {verb} no accelerators ({counted(nodes, 'node')}), so no job has a place; name one that "
        "does with another --fabric: Slurm's node lines with Gres=gpu:…, Kubernetes nodes, or a fabric file of Atoll "
        '(docs/placement.md), such as: nodes: [{name: "n[0-3]", accelerators: 8, accelerator: H100}]'
    )


def plan_on(fabric: Fabric, document: dict[str, Any], question: Question) -> PlanAnswer:
    """`document` is a checked job."""
    # Every node of a file counts as free, with all its CPUs.
    return PlanAnswer.model_validate(planned(parse_spec(document), fabric, Room(fabric.slots()), question))
