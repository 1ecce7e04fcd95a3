"""What is simulated: jobs, each with what it asks of the queue and of the solver, and the work it brings."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.placement.mesh import Mesh
from orchestrator.queue.claims import Claim
from orchestrator.spec.sections import PlacementSpec, RecoverySpec, ResourcesSpec
from orchestrator.topology.fabric import Slot

LONGEST_S = 1e9
"""Of every time that a file or an option gives: thirty years."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What the solver is asked for. Compared by identity: jobs that ask for the same thing share one."""

    mesh: Mesh
    rules: PlacementSpec = field(default_factory=PlacementSpec)
    resources: ResourcesSpec = field(default_factory=ResourcesSpec)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a job runs when the simulation begins."""

    slots: tuple[Slot, ...]
    cpus_per_rank: float
    unsaved_s: float = 0.0
    """Work since its newest checkpoint; part of `work_s`."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    claim: Claim
    shape: Shape
    submitted_s: float
    """Seconds since 1970."""
    work_s: float
    """Time it trains from its newest checkpoint on, start-up and repairs left out."""
    recovery: RecoverySpec = field(default_factory=RecoverySpec)
    held_s: float = 0.0
    """How long it has held accelerators before the simulation begins."""
    placed: Placed | None = None


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What no trace says. Seconds."""

    start_s: float = 60.0
    """From the placement to the first step, and from a new placement to the first step after the checkpoint."""
    checkpoint_every_s: float = 1800.0
    """Work between two checkpoints: what a lost node costs at most."""
    save_s: float = 30.0
    """Until a job that is told to go has saved; one with less grace loses the work since its last checkpoint."""
    round_s: float = 1.0
    """Between two passes over the queue."""
