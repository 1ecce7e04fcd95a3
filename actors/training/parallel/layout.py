"""Which slice of each parameter a rank holds.

Tensor and expert parallelism leave plain local tensors, and the layout lies beside them: the hot path pays for no
wrapper. ZeRO's shards are a further cut of those. Whoever needs the whole (initial values, gradient norm,
checkpoints) asks here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from actors.training.parallel.mesh import View


@dataclass(frozen=True, slots=True)
class Span:
    """Part `index` of a dimension of `size` in `parts`, as `torch.chunk` cuts: the first parts are the larger ones."""

    size: int
    parts: int
    index: int

    @property
    def start(self) -> int:
        return min(self.size, self.index * -(-self.size // self.parts))

    @property
    def length(self) -> int:
        return min(self.size, self.start + -(-self.size // self.parts)) - self.start


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut of a parameter along `dimension` over the ranks of a mesh axis: `tp`, `ep` or `shard`."""

    axis: str
    dimension: int
    span: Span


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    shape: tuple[int, ...]
    """Shape of the whole parameter."""
    cuts: tuple[Cut, ...] = ()
    """Applied one after the other, each to what the one before left."""
    expert: bool = False
    """Lives in the view of experts."""
    partial_gradient: bool = False
    """Every tp rank's backward gives a part of the gradient, to be added up."""

    def cut(self, axis: str, dimension: int, span: Span) -> ParameterLayout:
        return replace(self, cuts=(*self.cuts, Cut(axis, dimension, span)))

    def shard(self, whole: Tensor) -> Tensor:
        """This rank's part of `whole`, a view."""
        for cut in self.cuts:
            whole = whole.narrow(cut.dimension, cut.span.start, cut.span.length)
        return whole

    def offsets(self) -> tuple[int, ...]:
        """Where this rank's part begins in the whole, by dimension."""
        starts = [0] * len(self.shape)
        for cut in self.cuts:
            starts[cut.dimension] += cut.span.start
        return tuple(starts)

    def distributed(self, local: Tensor, view: View) -> Tensor:
        """`local` as what it is a shard of, for checkpoints; shares its memory."""
        if not self.cuts:
            return local
        by_axis = {cut.axis: Shard(cut.dimension) for cut in self.cuts}
        mesh = view.part(tuple(by_axis))
        assert mesh.mesh_dim_names is not None
        stride = [1] * len(self.shape)
        for dimension in reversed(range(len(self.shape) - 1)):
            stride[dimension] = stride[dimension + 1] * self.shape[dimension + 1]
        described = DTensorSpec(
            mesh,
            tuple(by_axis[name] for name in mesh.mesh_dim_names),
            tensor_meta=TensorMeta(torch.Size(self.shape), tuple(stride), local.dtype),
        )
        # Not `from_local`, which would move an offloaded state to the mesh's device.
        return DTensor(local, described, requires_grad=False)  # type: ignore[no-untyped-call]


Layouts = Mapping[str, ParameterLayout]
"""Layout of each parameter of a rank, by its name in the whole model."""


def local(tensor: Tensor) -> Tensor:
    """This rank's shard of a parameter or gradient, detached; shares its memory."""
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
