"""A plan against one process: the same job on the same data, compared after every step.

The one process runs first and leaves its weights on disk, step by step; the ranks of the plan then compare their shards
with their slices of it. Nothing of the plan is ever gathered.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from actors.training import device as devices
from actors.training.engine import Engine
from actors.training.local_gang import run_ranks
from actors.training.parallel.layout import local
from actors.training.parallel.mesh import set_default_timeout
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import ParallelismSpec, Precision

TOLERANCE = {
    Precision.FP64: 1e-9,
    Precision.FP32: 1e-5,
    Precision.BF16: 1e-2,
    Precision.FP16: 1e-2,
    Precision.FP8: 1e-1,
}
"""Largest relative difference that rounding explains. Weights are judged in fp64 alone: AdamW moves a weight by the
sign of its gradient, and the sign of a gradient that is nearly zero is rounding."""


@dataclass(frozen=True)
class Difference:
    """The largest relative difference of one quantity."""

    value: float
    where: str
    """Step (1-based) or parameter."""


@dataclass(frozen=True)
class StepDifference:
    step: int
    loss: float
    gradient_norm: float
    weights: dict[str, float]
    """|difference| / |weight| of each parameter, L2 over the whole parameter."""


@dataclass(frozen=True)
class Verdict:
    precision: Precision
    tolerance: float
    steps: tuple[StepDifference, ...]

    @property
    def loss(self) -> Difference:
        return self._largest("loss")

    @property
    def gradient_norm(self) -> Difference:
        return self._largest("gradient_norm")

    @property
    def weights(self) -> Difference:
        """Of the final weights."""
        name, value = max(self.steps[-1].weights.items(), key=lambda item: item[1])
        return Difference(value, name)

    @property
    def first(self) -> tuple[int, str] | None:
        """First step that differs by more than the tolerance, and what differs most there; None: nothing does."""
        for step in self.steps:
            over = {"loss": step.loss, "gradient norm": step.gradient_norm}
            if self.precision is Precision.FP64:
                over |= step.weights
            name, value = max(over.items(), key=lambda item: item[1])
            if value > self.tolerance:
                return step.step, name
        return None

    def _largest(self, field: str) -> Difference:
        step = max(self.steps, key=lambda step: float(getattr(step, field)))
        return Difference(getattr(step, field), f"step {step.step}")


def verify(spec: JobSpec, *, steps: int, directory: Path, deadline_s: float) -> Verdict:
    """Runs `steps` steps of `spec` in one process and then under its plan, all on this machine.

    `directory` takes the weights of the one process: steps x their size. RankFailedError when a rank fails.
    """
    single = spec.model_copy(update={"parallelism": _one_process(spec.parallelism)})
    alone = _run(single, steps, directory, deadline_s, writes=True)[0]
    ranks = _run(spec, steps, directory, deadline_s, writes=False)
    found = []
    for i in range(steps):
        loss, norm, _ = ranks[0][i]
        wanted_loss, wanted_norm, _ = alone[i]
        found.append(
            StepDifference(
                step=i + 1,
                loss=_relative(loss, wanted_loss),
                gradient_norm=_relative(norm, wanted_norm),
                weights=_relative_weights(rank[i][2] for rank in ranks),
            )
        )
    return Verdict(spec.training.precision, TOLERANCE[spec.training.precision], tuple(found))


def _one_process(plan: ParallelismSpec) -> ParallelismSpec:
    """No parallelism, and no more sequences in memory at once than a rank of the plan has."""
    return ParallelismSpec(microbatches=plan.dp * plan.microbatches)


Answer = list[tuple[float, float, dict[str, tuple[float, float]]]]
"""For each step: loss, gradient norm, and (squared difference, squared weight) of the shards this rank counts."""


def _run(spec: JobSpec, steps: int, directory: Path, deadline_s: float, *, writes: bool) -> list[Answer]:
    world = spec.parallelism.world_size
    timeout = timedelta(seconds=deadline_s)

    def program(rank: int, store: Any) -> Answer:
        device = devices.bind(rank)
        set_default_timeout(timeout)
        dist.init_process_group(
            devices.backend(device), store=store(), rank=rank, world_size=world, timeout=timeout
        )
        engine = Engine(spec, device, rank=rank)
        answers: Answer = []
        for step in range(steps):
            result = engine.train_step(step, stop=False)
            path = directory / f"step-{step}.pt"
            if writes:
                torch.save(_weights(engine), path)
            compared = {} if writes else _compare(engine, torch.load(path, mmap=True))
            answers.append((result.loss, result.grad_norm, compared))
        dist.barrier()
        return answers

    answers: list[Answer] = run_ranks(world, program, deadline_s=deadline_s)
    return answers


def _weights(engine: Engine) -> dict[str, Tensor]:
    found = {name: local(parameter).cpu() for name, parameter in engine.named}
    return found | {name: buffer.cpu() for name, buffer in engine.balance.moved_buffers().items()}


def _compare(engine: Engine, wanted: dict[str, Tensor]) -> dict[str, tuple[float, float]]:
    """Of the shards that no rank before this one holds; the others hold copies."""
    found = {}
    for name, mine in _weights(engine).items():
        layout = engine.layouts.get(name)
        cuts = set() if layout is None else {cut.axis for cut in layout.cuts}
        coordinates = engine.mesh.view(layout is not None and layout.expert).coordinates
        if any(index for axis, index in coordinates.items() if axis not in cuts | {"pp"}):
            continue
        theirs = wanted[name] if layout is None else layout.shard(wanted[name])
        difference = (mine.double() - theirs.double()).square().sum()
        found[name] = (float(difference), float(theirs.double().square().sum()))
    return found


def _relative(value: float, wanted: float) -> float:
    return _ordered(abs(value - wanted) / abs(wanted) if wanted else abs(value))


def _ordered(difference: float) -> float:
    """Infinite where there is no number: NaN is not the largest of anything, and would go unseen."""
    return math.inf if math.isnan(difference) else difference


def _relative_weights(ranks: Iterable[dict[str, tuple[float, float]]]) -> dict[str, float]:
    sums: dict[str, tuple[float, float]] = {}
    for rank in ranks:
        for name, (difference, weight) in rank.items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = (before[0] + difference, before[1] + weight)
    return {
        name: _ordered((difference / weight) ** 0.5 if weight else difference**0.5)
        for name, (difference, weight) in sums.items()
    }
