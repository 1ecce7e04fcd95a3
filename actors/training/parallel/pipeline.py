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

import heapq
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
from orchestrator.spec.sections import ModelSpec, ParallelismSpec, PipelineSchedule

SCHEDULES: dict[PipelineSchedule, Any] = {
    PipelineSchedule.GPIPE: ScheduleGPipe,
    PipelineSchedule.ONE_F_ONE_B: Schedule1F1B,
    PipelineSchedule.INTERLEAVED_1F1B: ScheduleInterleaved1F1B,
    PipelineSchedule.ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
    PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
}


def stages_of(plan: ParallelismSpec, rank: int) -> list[int]:
    """Stages that pipeline rank `rank` holds, in model order."""
    if plan.schedule is PipelineSchedule.ZBV and plan.pp > 1:
        return [rank, plan.stages - 1 - rank]
    return list(range(rank, plan.stages, plan.pp))


def rank_of(plan: ParallelismSpec, stage: int) -> int:
    """The pipeline rank that holds `stage`; the inverse of `stages_of`."""
    if plan.schedule is PipelineSchedule.ZBV and plan.pp > 1:
        return min(stage, plan.stages - 1 - stage)
    return stage % plan.pp


def split_layers(model: ModelSpec, plan: ParallelismSpec, *, vocab_size: int) -> list[range]:
    """Layers of each stage, contiguous: as the job says, or so that the largest stage is as small as can be.

    The embedding counts with the first stage and the head with the last. Every stage has a layer at least.
    """
    stages = plan.stages
    if plan.layers_per_stage is not None:
        counts = list(plan.layers_per_stage)
    elif stages > model.layers:
        raise ValueError(
            f"parallelism.pp: {stages} stages need as many layers, model.layers is {model.layers}"
        )
    else:
        table = vocab_size * model.hidden
        counts = _balanced(_weights(model), stages, ends=(table, table))
    return _contiguous(counts)


def split_blocks(costs: Sequence[int], ends: tuple[int, int], plan: ParallelismSpec) -> list[range]:
    """The same for an imported model: `costs` of its blocks, `ends` of what stands before and after them.

    ValueError for a plan that does not fit their number, which is known on the ranks alone.
    """
    stages, by_hand = plan.stages, plan.layers_per_stage
    if by_hand is not None and sum(by_hand) != len(costs):
        raise ValueError(
            f"parallelism.layers_per_stage: must add up to the {len(costs)} blocks of the imported model, "
            f"not {sum(by_hand)}"
        )
    if stages > len(costs):
        raise ValueError(
            f"parallelism.pp: {stages} stages need as many blocks, the imported model has {len(costs)}"
        )
    return _contiguous(by_hand if by_hand is not None else _balanced(costs, stages, ends=ends))


def _contiguous(counts: Sequence[int]) -> list[range]:
    """Layers of stages that have so many each."""
    stages = len(counts)
    starts = [sum(counts[:stage]) for stage in range(stages)]
    return [range(start, start + count) for start, count in zip(starts, counts, strict=True)]


def _weights(model: ModelSpec) -> list[int]:
    """Parameters that a token passes in each layer: what its time is proportional to."""
    attention = model.hidden * model.size_of_head * (2 * model.heads + 2 * model.kv_heads)
    costs = []
    for layer in range(model.layers):
        inner = model.ffn_hidden
        if model.is_moe(layer):
            assert model.moe is not None
            inner = (model.moe.ffn_hidden or inner) * (model.moe.top_k + model.moe.shared_experts)
        costs.append(attention + 3 * model.hidden * inner)
    return costs


def _balanced(costs: Sequence[int], stages: int, *, ends: tuple[int, int]) -> list[int]:
    """Numbers of layers a stage whose largest sum is least; of equals, the later stage gets more: it holds fewer
    micro-batches in flight. `ends` are added to the first and to the last stage."""
    if len(set(costs)) == 1:
        return _dealt(costs[0], len(costs), stages, ends)
    sums = [0]
    for cost in costs:
        sums.append(sums[-1] + cost)
    n = len(costs)
    # best[s][i]: least largest stage when the last i layers fill the last s stages.
    best: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
    for s in range(1, stages + 1):
        extra = (ends[1] if s == 1 else 0) + (ends[0] if s == stages else 0)
        row = {}
        for i in range(s, n - (stages - s) + 1):
            row[i] = min(
                (max(best[s - 1][i - take][0], sums[n - i + take] - sums[n - i] + extra), take)
                for take in range(1, i + 1)
                if i - take in best[s - 1]
            )
        best.append(row)
    counts, left = [], n
    for s in range(stages, 0, -1):
        counts.append(best[s][left][1])
        left -= counts[-1]
    return counts


def _dealt(layer: int, layers: int, stages: int, ends: tuple[int, int]) -> list[int]:
    """Layers are alike: giving the next one to the stage that would then be smallest is optimal."""
    counts, sizes = [1] * stages, [layer] * stages
    sizes[0] += ends[0]
    sizes[-1] += ends[1]
    smallest = [(size + layer, -stage) for stage, size in enumerate(sizes)]
    heapq.heapify(smallest)
    for _ in range(layers - stages):
        size, stage = heapq.heappop(smallest)
        counts[-stage] += 1
        heapq.heappush(smallest, (size + layer, stage))
    return counts


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
