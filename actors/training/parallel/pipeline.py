"""Pipeline parallelism over the pp axis with torch's schedules.

| schedule | stages a rank | source |
| --- | --- | --- |
| gpipe | 1 | Huang et al. 2019 |
| 1f1b | 1 | Narayanan et al. 2021, PipeDream-flush |
| interleaved-1f1b | v, every pp-th | Narayanan et al. 2021, section 2.2 |
| zero-bubble | v, every pp-th | Qi et al. 2024, ZB-H1 when v = 1 |
| zbv | 2, one from either end | Qi et al. 2024, section 6 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from actors.training.loss import TokenLoss
from actors.training.parallel.mesh import RankMesh
from actors.training.parallel.timeline import RecordedStage, recorder_for
from orchestrator.estimate.stages import rank_of, stages_of
from orchestrator.spec.sections import PipelineSchedule

SCHEDULES: dict[PipelineSchedule, Any] = {
    PipelineSchedule.GPIPE: ScheduleGPipe,
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
    PipelineSchedule.INTERLEAVED_1F1B: ScheduleInterleaved1F1B,
    PipelineSchedule.ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
}


@dataclass(frozen=True)
class Shapes:
    """What goes into stages and comes out of them for one micro-batch, on the meta device."""

    tokens: Tensor
    hidden: Tensor
    """Between stages."""
    logits: Tensor
    """This rank's share of the vocabulary."""


class Pipeline:
    """Execution of this rank's stages. Shapes are given beforehand, so no rank asks its neighbour on the first step."""

    def __init__(
        self,
        parts: Sequence[nn.Module],
        mesh: RankMesh,
        *,
        loss: TokenLoss,
        shapes: Shapes,
        device: torch.device,
    ) -> None:
        """`parts` in the order of `stages_of`."""
        self._plan = plan = mesh.parallelism
        self._group = mesh.group("pp")
        self._loss = loss
        self.recorder = recorder_for(device)
        self._rank = mesh.coordinates["pp"]
        self._parts = dict(zip(stages_of(plan, self._rank), parts, strict=True))
        self._hidden = hidden = shapes.hidden
        stages = [
            RecordedStage(
                part,
                index,
                plan.stages,
                device,
                input_args=shapes.tokens if index == 0 else hidden.clone().requires_grad_(),
                output_args=(shapes.logits if index == plan.stages - 1 else hidden).clone().requires_grad_(),
                group=self._group,
                recorder=self.recorder,
            )
            for index, part in self._parts.items()
        ]
        takes_many = plan.schedule.takes_virtual_stages
        # scale_grads=False: the loss already carries each micro-batch's share.
        self._schedule = SCHEDULES[plan.schedule](
            stages if takes_many else stages[0],
            n_microbatches=plan.microbatches,
            loss_fn=self.recorder.with_loss(loss),
            scale_grads=False,
        )

    @property
    def _has_first(self) -> bool:
        return 0 in self._parts

    @property
    def _has_last(self) -> bool:
        return self._plan.stages - 1 in self._parts

    def train(self, inputs: Tensor, targets: Tensor) -> Tensor:
        losses: list[Tensor] = []
        self._schedule.step(
            *((inputs,) if self._has_first else ()),
            target=targets if self._has_last else None,
            losses=losses if self._has_last else None,
            return_outputs=False,
        )
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        for loss in losses:
            total += loss.detach()
        return total

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Forward alone, micro-batch after micro-batch through the stages in model order, whatever the schedule."""
        total = torch.zeros((), dtype=torch.float64, device=inputs.device)
        summed = self._loss.summed()
        xs, ys = inputs.chunk(self._plan.microbatches), targets.chunk(self._plan.microbatches)
        outputs: dict[int, Tensor] = {}
        sends: list[tuple[dist.Work | None, Tensor]] = []
        for stage, part in self._parts.items():
            for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                output = part(x if stage == 0 else self._receive(stage, outputs.get(i), inputs.device))
                if stage == self._plan.stages - 1:
                    total += summed(output, y)
                elif rank_of(self._plan, stage + 1) == self._rank:
                    outputs[i] = output
                else:
                    sends.append((dist.isend(output, self._global(stage + 1), group=self._group), output))
        for work, _ in sends:
            if work is not None:
                work.wait()
        return total

    def _receive(self, stage: int, own: Tensor | None, device: torch.device) -> Tensor:
        """What the stage before made of a micro-batch."""
        if rank_of(self._plan, stage - 1) == self._rank:
            assert own is not None
            return own
        hidden = torch.empty_like(self._hidden, device=device)
        dist.recv(hidden, self._global(stage - 1), group=self._group)
        return hidden

    def _global(self, stage: int) -> int:
        return dist.get_global_rank(self._group, rank_of(self._plan, stage))
