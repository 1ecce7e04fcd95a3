"""A real pipeline over ranks whose stages sleep instead of computing: its bubbles are those of the schedule alone."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from gang import FakeReporter, run_ranks
from torch import Tensor, nn

from actors.training.parallel.mesh import build_mesh, set_default_timeout
from actors.training.parallel.pipeline import Pipeline, Shapes
from actors.training.parallel.timeline import StepTimelines
from orchestrator.estimate.stages import stages_of
from orchestrator.lifecycle.timeline import Timeline
from orchestrator.spec.sections import ParallelismSpec

HIDDEN = 8
POSITIONS = 4


class _Sleep(torch.autograd.Function):
    """The identity, slowly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        time.sleep(ctx.backward_s)
        return gradient, None, None


class FakeStage(nn.Module):
    """Takes `forward_s`, `input_s` for the gradient of its input and `weight_s` for that of its weight."""

    def __init__(self, *, first: bool, forward_s: float, input_s: float, weight_s: float) -> None:
        super().__init__()
        self._first, self._times = first, (forward_s, input_s)
        self._weight_s = weight_s
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: Tensor) -> Tensor:
        if self._first:
            x = torch.zeros(*x.shape, HIDDEN, requires_grad=True)
        weight = _Sleep.apply(self.weight, 0.0, self._weight_s) if self._weight_s else self.weight
        return _Sleep.apply(x, *self._times) * weight


class _Sum:
    """In place of the loss over tokens."""

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return output.sum()


def run_sleeping(
    plan: ParallelismSpec,
    *,
    forward_s: float,
    input_s: float,
    weight_s: float = 0.0,
    quiet_us: float = 0.0,
    at_most: int = 12,
) -> list[Timeline]:
    """The timelines of steps, that of the quickest first: it is the one that other processes disturbed least.

    Steps are run until one takes at most `quiet_us`, and no more than `at_most` after a first one.
    """

    def program(rank: int, store: Any) -> list[dict[str, Any]]:
        timeout = timedelta(seconds=120)
        set_default_timeout(timeout)
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=plan.pp, timeout=timeout)
        device = torch.device("cpu")
        mesh = build_mesh(plan, device, rank=rank, experts=False)
        parts = [
            FakeStage(first=stage == 0, forward_s=forward_s, input_s=input_s, weight_s=weight_s)
            for stage in stages_of(plan, rank)
        ]
        hidden = torch.empty(1, POSITIONS, HIDDEN, device="meta")
        pipeline = Pipeline(
            parts,
            mesh,
            loss=_Sum(),  # type: ignore[arg-type]
            shapes=Shapes(
                tokens=torch.empty(1, POSITIONS, dtype=torch.long, device="meta"),
                hidden=hidden,
                logits=hidden,
            ),
            device=device,
        )
        timelines = StepTimelines(pipeline.recorder, mesh, steps=at_most, every=1)
        reporter = FakeReporter()
        tokens = torch.zeros(plan.microbatches, POSITIONS, dtype=torch.long)
        for step in range(1 + at_most):
            timelines.begin(step)
            pipeline.train(tokens, tokens)
            timelines.report(reporter)
            found = reporter.of("timeline")[1:]
            done = torch.tensor(bool(found) and found[-1]["window_us"] <= quiet_us)
            dist.broadcast(
                done, src=0
            )  # and no rank begins before another has ended, as with the gradients' norm
            if done:
                break
        return found

    first, *others = run_ranks(plan.pp, program)
    assert not any(others), "the first rank alone reports"
    return sorted(map(Timeline.model_validate, first), key=lambda timeline: timeline.window_us)
