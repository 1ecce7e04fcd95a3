"""JobSpec: what a user asks for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.spec.sections import (
    CheckpointSpec,
    DataSpec,
    HealthSpec,
    ModelSpec,
    ParallelismSpec,
    PlacementSpec,
    QueueSpec,
    RecoverySpec,
    ResourcesSpec,
    Section,
    TrainingSpec,
)


class JobSpec(Section):
    """A training job. Only `name` and `training.steps` have no default."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    """Lower-case letters, digits and hyphens; 63 at most. Need not be unique."""
    model: ModelSpec = ModelSpec()
    parallelism: ParallelismSpec = ParallelismSpec()
    training: TrainingSpec
    data: DataSpec = DataSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    recovery: RecoverySpec = RecoverySpec()
    health: HealthSpec = HealthSpec()
    placement: PlacementSpec = PlacementSpec()
    resources: ResourcesSpec = ResourcesSpec()
    queue: QueueSpec = QueueSpec()
