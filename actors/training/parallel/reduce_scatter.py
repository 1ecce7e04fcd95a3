"""Reduce-scatter of sums: the backend's own, and over gloo an exchange of parts that each rank adds up itself.

Gloo's reduce-scatter takes two to three times as long as an all-to-all of the same n(P-1)/P bytes and a sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter


def reduce_scatter_sum(mine: Tensor, parts: Tensor, group: dist.ProcessGroup) -> None:
    """Adds up over the ranks and leaves part r to rank r.

    `parts`: contiguous, the parts of the P ranks one after the other in dimension 0; `mine`: the shape of one part.
    """
    if dist.get_backend(group) != "gloo":
        dist.reduce_scatter_single(mine, parts, group=group)
        return
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts, group=group)
    torch.sum(received.view(dist.get_world_size(group), *mine.shape), dim=0, out=mine)


class ExchangedSums(ReduceScatter):
    """The reduce-scatter of FSDP's units. FSDP must ask for sums: `set_force_sum_reduction_for_comms`."""

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        if op != dist.ReduceOp.SUM or async_op:
            raise ValueError(
                f"FSDP asked for {op}, asynchronous: {async_op}; this collective adds up at once"
            )
        reduce_scatter_sum(output_tensor, input_tensor, group)
