"""A snapshot of a real cluster: its fabric, and the jobs that wait and run. `atoll snapshot` writes it.

JSON: {"format": "atoll-snapshot-1", "at", "fabric": {"nodes": [...], "links": {TIER: ...}}, "jobs": [...]}.
Times are RFC 3339.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from orchestrator.placement.mesh import Mesh
from orchestrator.queue.claims import Claim
from orchestrator.simulate.jobs import Placed, Shape, SimulatedJob
from orchestrator.simulate.philly import InvalidTraceError
from orchestrator.spec.parse import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.spec.sentences import field_sentence
from orchestrator.spec.violations import InvalidSpecError
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node, Slot
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key

FORMAT: Literal["atoll-snapshot-1"] = "atoll-snapshot-1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


_Index = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SnapshotNode(_Part):
    name: Annotated[str, Field(min_length=1, max_length=255)]
    accelerators: Annotated[int, Field(ge=0, le=1024)]
    domains: dict[str, str] = {}
    """Domain per switch tier; tiers that are not known are left out."""
    islands: dict[int, str] = {}
    """Island per accelerator, where islands are smaller than the node."""
    accelerator: str | None = None
    alive: bool = True
    schedulable: bool = True
    cpus: float | None = None
    suspect: bool = False
    rails: dict[int, list[str]] = {}
    """Network adapters nearest to each accelerator."""
    weak_pairs: list[tuple[_Index, _Index]] = []
    partitioned: list[_Index] = []


class SnapshotLink(_Part):
    """As `orchestrator.topology.links.Link`, in bytes and seconds."""

    kind: str | None = None
    bandwidth: _Positive | None = None
    latency_s: _Positive | None = None
    uplink: _Positive | None = None
    measured: bool = False


class SnapshotFabric(_Part):
    nodes: list[SnapshotNode]
    links: dict[Tier, SnapshotLink] = {}
    """Files written before links were kept have none."""


class SnapshotJob(_Part):
    id: str
    submitted_at: AwareDatetime
    spec: dict[str, Any]
    step: Annotated[int, Field(ge=0)] = 0
    checkpoint_step: Annotated[int, Field(ge=0)] = 0
    """Step of its newest good checkpoint; 0: none."""
    step_s: Annotated[float, Field(gt=0)] | None = None
    """Time of a step lately; null before the first."""
    slots: list[tuple[str, Annotated[int, Field(ge=0)]]] | None = None
    """[node, accelerator] of each rank; null while it waits."""
    held_s: Annotated[float, Field(ge=0)] = 0.0
    """How long it has held accelerators so far."""


class Snapshot(_Part):
    format: Literal["atoll-snapshot-1"] = FORMAT
    at: AwareDatetime
    fabric: SnapshotFabric
    jobs: list[SnapshotJob]


def read_snapshot(text: str, *, origin: str) -> Snapshot:
    """InvalidTraceError names every violation."""
    try:
        return Snapshot.model_validate_json(text)
    except ValidationError as error:
        problems = "; ".join(field_sentence(detail) for detail in error.errors()[:10])
        raise InvalidTraceError(f"{origin} is no snapshot: {problems}") from None


def is_snapshot(text: str) -> bool:
    """By content: a JSON object that names the format."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


def fabric_of(snapshot: Snapshot) -> Fabric:
    """Nodes in natural order of their names, as the cluster's own fabric has them, whatever their order in the file."""
    return Fabric(
        tuple(
            Node(
                name=node.name,
                accelerators=node.accelerators,
                domains={
                    tier: node.domains[tier.value] for tier in SWITCH_TIERS if tier.value in node.domains
                },
                islands=node.islands,
                accelerator=node.accelerator,
                alive=node.alive,
                schedulable=node.schedulable,
                cpus=node.cpus,
                suspect=node.suspect,
                rails={index: tuple(adapters) for index, adapters in node.rails.items()},
                weak_pairs=frozenset(node.weak_pairs),
                partitioned=frozenset(node.partitioned),
            )
            for node in sorted(snapshot.fabric.nodes, key=lambda node: natural_key(node.name))
        ),
        {tier: Link(**link.model_dump()) for tier, link in snapshot.fabric.links.items()},
    )


def jobs_of(snapshot: Snapshot, *, origin: str, step_s: float) -> list[SimulatedJob]:
    """The jobs, oldest first, as they go on from the snapshot. `step_s`: time of a step of jobs that have made none.

    InvalidTraceError for a job file that this version does not take.
    """
    found = []
    for job in sorted(snapshot.jobs, key=lambda job: (job.submitted_at, job.id)):
        try:
            spec = parse_spec(job.spec)
        except InvalidSpecError as error:
            raise InvalidTraceError(f"{origin}: the file of job {job.id} cannot be taken: {error}") from None
        saved = min(job.checkpoint_step, job.step)
        each_s = job.step_s or step_s
        claim = Claim.of(job.id, spec)
        placed = None
        if job.slots is not None:
            slots = tuple(Slot(node, index) for node, index in job.slots)
            if len(slots) != claim.size:
                message = f"{len(slots)} slots of job {job.id}, its plan has {claim.size} ranks"
                raise InvalidTraceError(f"{origin}: {message}")
            placed = Placed(slots, spec.resources.cpus_per_rank, (job.step - saved) * each_s)
        found.append(
            SimulatedJob(
                claim,
                Shape(Mesh.of(spec.parallelism), spec.placement, spec.resources),
                submitted_s=job.submitted_at.timestamp(),
                work_s=max(0, spec.training.steps - saved) * each_s,
                recovery=spec.recovery,
                held_s=job.held_s,
                placed=placed,
            )
        )
    return found
