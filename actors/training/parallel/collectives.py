"""Collectives that autograd can pass through: each is the other's adjoint, in pairs.

| forward | backward |
| --- | --- |
| `copy_in`: nothing | all-reduce |
| `reduce_out`: all-reduce | nothing |
| `gather_positions`: all-gather along positions | reduce-scatter |
| `scatter_positions`: reduce-scatter along positions | all-gather |

Tensors are (batch, positions, features); the group's ranks hold equal shares of the positions.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from actors.training.parallel.reduce_scatter import reduce_scatter_sum


def copy_in(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Into a region where each rank computes with its share of the weights."""
    return cast(Tensor, _CopyIn.apply(x, group))  # type: ignore[no-untyped-call]


def reduce_out(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Out of that region: partial results are added up."""
    return cast(Tensor, _ReduceOut.apply(x, group))  # type: ignore[no-untyped-call]


def gather_positions(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    return cast(Tensor, _GatherPositions.apply(x, group))  # type: ignore[no-untyped-call]


def scatter_positions(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Adds partial results up and leaves each rank its share of the positions."""
    return cast(Tensor, _ScatterPositions.apply(x, group))  # type: ignore[no-untyped-call]


def _all_reduce(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def _all_gather(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    size = dist.get_world_size(group)
    batch, positions, features = x.shape
    gathered = x.new_empty((size, batch, positions, features))
    dist.all_gather_single(gathered.view(size * batch, positions, features), x.contiguous(), group=group)
    return gathered.transpose(0, 1).reshape(batch, size * positions, features)


def _reduce_scatter(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    size = dist.get_world_size(group)
    batch, positions, features = x.shape
    shares = x.view(batch, size, positions // size, features).transpose(0, 1).contiguous()
    mine = x.new_empty((batch, positions // size, features))
    reduce_scatter_sum(mine, shares.view(size * batch, positions // size, features), group)
    return mine


class _CopyIn(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all_reduce(gradient, ctx.group), None


class _ReduceOut(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        return _all_reduce(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _GatherPositions(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_gather(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _reduce_scatter(gradient.contiguous(), ctx.group), None


class _ScatterPositions(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return _reduce_scatter(x.contiguous(), group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _all_gather(gradient, ctx.group), None
