"""Data parallelism: gradients of replicas are added in buckets while backward still runs. A sent bucket is where its
gradients are from then on.

Own buckets rather than FSDP2's `replicate`: parameters stay what tensor parallelism made of them (no second mesh in
checkpoints or in the norm), the sum is a plain sum in a fixed order of buckets, and the same code counts micro-batches
of a pipeline and of gradient accumulation. Bucket boundaries and their order depend on the parameters and the bucket
size alone, pieces of a bucket on the kind of device, so equal runs add in equal order and give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from actors.training.parallel.buffers import join, split

_HOST_PIECES = 2
"""All-reduces of one bucket under way together on a host: over TCP one adds while the other waits."""


@dataclass
class _Bucket:
    parameters: list[nn.Parameter]
    waiting: int = 0
    """Parameters whose gradient of this step is not complete."""
    work: list[dist.Work] = field(default_factory=list)


class GradientReducer:
    """Sums gradients, which are of `dtype`, over `group`, in buckets of up to `bucket_bytes`: large enough for
    bandwidth and small enough to start early. A gradient is complete after `accumulations` backward passes. Parameters
    must be contiguous, as their gradients will be."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        group: dist.ProcessGroup,
        *,
        dtype: torch.dtype,
        accumulations: int,
        bucket_bytes: int,
    ) -> None:
        assert all(parameter.is_contiguous() for parameter in parameters)
        self._group = group
        self._dtype = dtype
        self._accumulations = accumulations
        # Backward reaches the last parameters first.
        self._buckets = _fill_buckets(list(reversed(parameters)), bucket_bytes // dtype.itemsize)
        self._passes: dict[int, int] = {}
        self._launched = 0
        bucket_of = {id(p): bucket for bucket in self._buckets for p in bucket.parameters}
        for parameter in parameters:
            hook = self._counter(bucket_of[id(parameter)])
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        self._reset()

    def finish(self) -> None:
        """Launches what backward has not, and waits: gradients are the sums then. Call once a step, on every rank."""
        for bucket in self._buckets[self._launched :]:
            self._launch(bucket)
        for bucket in self._buckets:
            for work in bucket.work:
                work.wait()
        self._reset()

    def _counter(self, bucket: _Bucket) -> Callable[[Tensor], None]:
        def count(parameter: Tensor) -> None:
            passes = self._passes.get(id(parameter), 0) + 1
            self._passes[id(parameter)] = passes
            if passes == self._accumulations:
                bucket.waiting -= 1
                self._launch_ready()

        return count

    def _launch_ready(self) -> None:
        """Launches in bucket order, never out of it: replicas must issue the same collectives in the same order."""
        while self._launched < len(self._buckets) and self._buckets[self._launched].waiting == 0:
            self._launch(self._buckets[self._launched])
            self._launched += 1

    def _launch(self, bucket: _Bucket) -> None:
        with torch.no_grad():
            flat = join([self._gradient(p) for p in bucket.parameters])
        # From now on views of what is summed: nothing is copied back, and no gradient is there twice.
        for parameter, total in zip(bucket.parameters, split(flat, bucket.parameters), strict=True):
            parameter.grad = total
        pieces = flat.chunk(_HOST_PIECES) if flat.device.type == "cpu" else (flat,)
        for piece in pieces:
            work = dist.all_reduce(piece, group=self._group, async_op=True)
            assert work is not None  # this rank is in the group
            bucket.work.append(work)

    def _gradient(self, parameter: nn.Parameter) -> Tensor:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=self._dtype)
        return parameter.grad

    def _reset(self) -> None:
        self._passes.clear()
        self._launched = 0
        for bucket in self._buckets:
            bucket.waiting = len(bucket.parameters)
            bucket.work.clear()


def _fill_buckets(parameters: Sequence[nn.Parameter], elements: int) -> list[_Bucket]:
    buckets: list[_Bucket] = []
    filled = elements
    for parameter in parameters:
        size = parameter.numel()
        if filled + size > elements:
            buckets.append(_Bucket([]))
            filled = 0
        buckets[-1].parameters.append(parameter)
        filled += size
    return buckets
