"""How the micro-batches of a step run through this rank: through a pipeline, or one after the other."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from actors.training.loss import TokenLoss
from actors.training.parallel.sharding import before_microbatch
from actors.training.parallel.timeline import Recorder, recorder_for
from orchestrator.lifecycle.timeline import Work
from orchestrator.spec.sections import ParallelismSpec


class Execution(Protocol):
    """Runs the sequences of this replica. `inputs` and `targets` are (sequences, positions) on the rank's device.

    Both calls return this rank's share of the loss, a float64 scalar: zero where the loss is not computed, the same on
    all ranks of a tp group.
    """

    recorder: Recorder
    """When this rank computed what in the newest step."""

    def train(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Forward and backward of all micro-batches; gradients are added to `.grad`."""

    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Forward alone: the summed loss, not divided by any count."""


class Accumulation:
    """Without a pipeline: gradient accumulation over micro-batches."""

    def __init__(self, part: nn.Module, *, loss: TokenLoss, plan: ParallelismSpec) -> None:
        self._part = part
        self._loss = loss
        self._plan = plan
        self.recorder = recorder_for(next(part.parameters()).device)

    def train(self, inputs: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        recorder = self.recorder
        for i, (x, y) in enumerate(self._chunks(inputs, targets)):
            before_microbatch(self._part, self._plan, last=i == self._plan.microbatches - 1)
            started = recorder.mark()
            loss = self._loss(self._part(x), y)
            recorder.add(Work.FORWARD, 0, i, started)
            started = recorder.mark()
            loss.backward()  # type: ignore[no-untyped-call]
            recorder.add(Work.BACKWARD, 0, i, started)
            total += loss.detach()
        return total

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        summed = self._loss.summed()
        for x, y in self._chunks(inputs, targets):
            total += summed(self._part(x), y)
        return total

    def _chunks(self, inputs: Tensor, targets: Tensor) -> zip[tuple[Tensor, Tensor]]:
        n = self._plan.microbatches
        # Fewer chunks than micro-batches would never be the last one, and ZeRO would never scatter its gradients.
        assert len(inputs) % n == 0, f"{len(inputs)} sequences do not make {n} micro-batches"
        return zip(inputs.chunk(n), targets.chunk(n), strict=True)
