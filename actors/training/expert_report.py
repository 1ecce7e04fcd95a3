"""The load of every expert in the job's history, often enough to be drawn and seldom enough to be kept."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist

from actors.training.context import RankContext
from actors.training.engine import Engine
from actors.training.parallel.balance import ExpertLoad
from orchestrator.lifecycle.reports import EventKind
from orchestrator.spec import JobSpec

REPORTS = 100
"""Events in the life of a job, however many steps it has."""
EXPERTS_LISTED = 4096
"""Experts, over all layers, whose loads one event lists."""


class ExpertReport:
    """Every rank has one and takes every step; rank 0 says what it finds."""

    def __init__(self, spec: JobSpec, context: RankContext, engine: Engine) -> None:
        self._moe = spec.model.moe
        self._every = -(-spec.training.steps // REPORTS)
        self._context = context
        self._engine = engine

    def take(self, step: int, loads: Sequence[ExpertLoad]) -> None:
        """Loads of this rank's stages in step `step` (1-based). Collective over the pipeline when it reports."""
        if self._moe is None or step % self._every:
            return
        found = self._of_all_stages(loads)
        if self._context.rank != 0 or not found:
            return
        shown = _spread(found, max(1, EXPERTS_LISTED // self._moe.experts))
        assigned = sum(sum(load.assigned) for load in found)
        dropped = sum(sum(load.dropped) for load in found)
        largest = max(max(load.assigned) * len(load.assigned) / max(1, sum(load.assigned)) for load in found)
        self._context.reporter.event(
            EventKind.EXPERT_LOAD.value,
            f"experts in step {step}: the fullest has {largest:.2f} times its even share, "
            f"{dropped / max(1, assigned):.1%} of the assignments dropped",
            {
                "step": step,
                "layers": [
                    {"layer": load.layer, "assigned": list(load.assigned), "dropped": list(load.dropped)}
                    for load in shown
                ],
                "layers_with_experts": len(found),
            },
        )

    def _of_all_stages(self, loads: Sequence[ExpertLoad]) -> list[ExpertLoad]:
        group = self._engine.mesh.group("pp")
        if dist.get_world_size(group) == 1:
            return list(loads)
        told: list[Sequence[ExpertLoad]] = [()] * dist.get_world_size(group)
        dist.all_gather_object(told, list(loads), group=group)
        return sorted((load for stage in told for load in stage), key=lambda load: load.layer)


def _spread(loads: Sequence[ExpertLoad], at_most: int) -> list[ExpertLoad]:
    """All, or `at_most` layers spread evenly from the first one on."""
    count = min(at_most, len(loads))
    return [loads[i * len(loads) // count] for i in range(count)]
