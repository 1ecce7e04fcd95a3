"""Measured bytes of a step beside the formulas, for any plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from plans import run_engine

from actors.training.metrics.traffic import Traffic
from actors.training.model.moe import MoeFeedForward
from orchestrator.estimate.share import Stage
from orchestrator.estimate.stages import split_layers, stages_of
from orchestrator.estimate.traffic import step_traffic
from orchestrator.spec import JobSpec

WARM_UP = 1
"""Steps before the one that is measured: shapes of the pipeline are agreed on in the first."""


@dataclass
class Measured:
    sent: dict[str, float]
    """By axis."""
    stages: list[int]
    kinds: dict[tuple[str, str], float] = field(default_factory=dict)


def measure(spec: JobSpec, prepare: Callable[[Any, int], None] | None = None) -> list[Measured]:
    """One step of `spec` on all ranks, counted. `prepare(engine, rank)` may change the engine first."""

    def body(engine: Any, rank: int) -> Measured:
        if prepare is not None:
            prepare(engine, rank)
        for step in range(WARM_UP):
            engine.train_step(step, stop=False)
        engine.meter.traffic.clear()
        engine.train_step(WARM_UP, stop=False)
        traffic: Traffic = engine.meter.traffic
        stages = stages_of(spec.parallelism, engine.mesh.coordinates["pp"])
        return Measured(traffic.by_axis(), stages, dict(traffic.sent_bytes))

    return run_engine(spec, body)


def expected(spec: JobSpec, stages: list[int], *, leaving: float | None = None) -> dict[str, float]:
    layers = split_layers(spec.model, spec.parallelism, vocab_size=spec.data.vocab_size)
    held = [Stage(layers[index], index, spec.parallelism.stages) for index in stages]
    return step_traffic(spec, held, leaving=leaving)


def route_evenly(engine: Any, rank: int) -> None:
    """Every token's experts follow from its position, so that each expert gets as many as any other."""
    for part in engine.parts:
        for module in part.modules():
            if isinstance(module, MoeFeedForward):
                module.router.forward = _even_scores(module.router, module.spec.experts)


def _even_scores(router: torch.nn.Module, experts: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def scores(x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        ranks = (torch.arange(experts, device=x.device) - positions.unsqueeze(1)) % experts
        weight = router.get_parameter("weight")
        # The weight takes part, so that its gradient exists as ever.
        return (-ranks.to(weight.dtype)).softmax(dim=-1) + 0.0 * (x.to(weight.dtype) @ weight.T)

    return scores
