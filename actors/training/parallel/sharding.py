"""ZeRO over torch's FSDP2 (Rajbhandari et al. 2020; Zhao et al. 2023).

A unit is what is gathered or scattered at once: blocks that follow each other, up to `parallelism.bucket_mb`; the
experts of a block; the rest of the part, or all of it where it has no more. The stages of ZeRO differ in what stays
whole between communications:

| zero | parameters | gradients | communication of a step |
| --- | --- | --- | --- |
| 1 | gathered once a step | whole until the last micro-batch | all-gather, reduce-scatter |
| 2 | gathered once a step | scattered after each micro-batch | all-gather, reduce-scatter a micro-batch |
| 3 | gathered for forward and again for backward | scattered after each micro-batch | as many a micro-batch |

Under a pipeline a stage's backward passes are many and apart: gradients are scattered after the last one only.
Optimizer states are sharded in all three. Losses are shares of the step's mean, so sums are not divided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard

from actors.training.model.moe import MoeFeedForward
from actors.training.model.part import Part
from actors.training.parallel.layout import ParameterLayout, Span
from actors.training.parallel.mesh import RankMesh, View
from actors.training.parallel.reduce_scatter import ExchangedSums
from orchestrator.spec.sections import ParallelismSpec


def shard_states(
    part: Part, layouts: dict[str, ParameterLayout], mesh: RankMesh, *, mixed: MixedPrecisionPolicy
) -> None:
    """Shards the parameters of `part` over the data ranks and writes the layouts: those on the meta device, and those
    that have values, the same on all ranks.

    Without ZeRO nothing is changed.
    """
    plan = mesh.parallelism
    if not plan.zero:
        return
    dense = mesh.dense
    for block in part.blocks.values():
        for moe in block.modules():
            if isinstance(moe, MoeFeedForward):
                assert mesh.expert is not None
                _shard([moe.experts], mesh.expert, plan, mixed)
    if _whole_bytes(part.module) > plan.bucket_bytes:
        for unit in _units(part.blocks.values(), limit_bytes=plan.bucket_bytes):
            _shard(unit, dense, plan, mixed)
    _shard([part.module], dense, plan, mixed)
    for name, parameter in part.module.named_parameters():
        layout = layouts[name]
        assert isinstance(parameter, DTensor)
        placement = parameter.placements[-1]
        if isinstance(placement, Shard):  # the other kind: one rank to shard over
            view = mesh.view(layout.expert)
            dimension = placement.dim
            size = layout.shard(torch.empty(layout.shape, device="meta")).shape[dimension]
            span = Span(size, view.size("shard"), view.coordinates["shard"])
            layouts[name] = layout.cut("shard", dimension, span)


def _units(blocks: Iterable[nn.Module], *, limit_bytes: int) -> list[list[nn.Module]]:
    """Blocks in their order, together up to `limit_bytes`; one that has more goes alone. Every collective makes all
    ranks wait for the slowest, so small ones cost more than their bytes."""
    units: list[list[nn.Module]] = []
    filled = limit_bytes
    for block in blocks:
        size = _whole_bytes(block)
        if not units or filled + size > limit_bytes:
            units.append([])
            filled = 0
        units[-1].append(block)
        filled += size
    return units


def _whole_bytes(module: nn.Module) -> int:
    """Of the parameters that no unit has yet."""
    return sum(p.numel() * p.element_size() for p in module.parameters() if not isinstance(p, DTensor))


def _shard(unit: Sequence[nn.Module], view: View, plan: ParallelismSpec, mixed: MixedPrecisionPolicy) -> None:
    axes = ("replicate", "shard") if view.size("replicate") > 1 else ("shard",)
    over_neighbours = type(plan.reshard_after_forward) is int
    fully_shard(
        list(unit),
        mesh=view.part(axes),
        reshard_after_forward=plan.reshard_after_forward if plan.zero == 3 and plan.pp == 1 else False,
        # Resharded over neighbours, torch gathers what is cut along dimension 0 alone.
        shard_placement_fn=None if over_neighbours else _longest_dimension(view.size("shard")),
        mp_policy=mixed,
    )
    module = unit[0]  # they share their state
    assert isinstance(module, FSDPModule)
    module.set_gradient_divide_factor(1.0)
    # Sums in the collective: gloo has no pre-multiplied sum.
    module.set_force_sum_reduction_for_comms(True)
    module.set_custom_reduce_scatter(ExchangedSums())


def _longest_dimension(shards: int) -> Callable[[nn.Parameter], Shard | None]:
    """Dimension 0 unless it has fewer rows than there are shards: few experts on a rank are cut inside."""

    def placement(parameter: nn.Parameter) -> Shard | None:
        if parameter.shape[0] >= shards or parameter.dim() == 1:
            return None
        dimension = max(range(parameter.dim()), key=lambda d: parameter.shape[d])
        # FSDP wants an even cut of any dimension but the first.
        return Shard(dimension) if parameter.shape[dimension] % shards == 0 else None

    return placement


def before_microbatch(part: nn.Module, plan: ParallelismSpec, *, last: bool) -> None:
    """Says to FSDP what the coming backward is to do; for accumulation without a pipeline."""
    if not isinstance(part, FSDPModule):
        return
    part.set_is_last_backward(last)
    if plan.zero == 1:
        part.set_requires_gradient_sync(last)
    if plan.zero < 3:
        part.set_reshard_after_backward(last)
