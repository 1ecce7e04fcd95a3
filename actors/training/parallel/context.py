"""Context parallelism: the positions of a sequence are spread over the ranks of a cp group, and attention alone needs
the others.

Positions are dealt head-tail (Llama 3, section 3.3.2): of 2 x cp chunks rank i holds chunks i and 2 x cp - 1 - i, so
that every rank has the same number of query-key pairs under the causal mask. Three ways to attend:

- all-gather: every rank gathers all keys and values; backward reduce-scatters their gradients.
- ring (Liu et al. 2023): keys and values travel round the ring while each rank attends to the block it has; results
  are merged by their log-sum-exp. No rank ever holds more than two blocks.
- Ulysses (Jacobs et al. 2023): all-to-all trades positions for heads; each rank attends with some heads to everything.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.decoder import Decoder, Layer
from actors.training.parallel.reduce_scatter import reduce_scatter_sum
from orchestrator.spec.sections import ContextMethod


def positions_of(positions: int, *, cp: int, index: int) -> Tensor:
    """Positions of a sequence that rank `index` of a cp group holds, in the order it holds them."""
    chunks = torch.arange(positions).chunk(2 * cp)
    return torch.arange(positions) if cp == 1 else torch.cat((chunks[index], chunks[2 * cp - 1 - index]))


def apply_context_parallel(
    part: Decoder, group: dist.ProcessGroup, *, method: ContextMethod, positions: int
) -> None:
    """Replaces what attends in every layer. With one rank in the group nothing is changed."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    if size == 1:
        return
    by_rank = [positions_of(positions, cp=size, index=i) for i in range(size)]
    for layer in part.layers.values():
        assert isinstance(layer, Layer)
        layer.attention.mix = _METHODS[method](group, by_rank, rank)


class AllGatherAttention(nn.Module):
    def __init__(self, group: dist.ProcessGroup, positions: list[Tensor], rank: int) -> None:
        super().__init__()
        self._group = group
        everywhere = torch.cat(positions)
        self._order = everywhere.argsort()
        self._mask = positions[rank].unsqueeze(1) >= torch.arange(len(everywhere)).unsqueeze(0)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        both = _GatherPositions.apply(torch.stack((key, value)), self._group)  # type: ignore[no-untyped-call]
        key, value = both[:, :, :, self._order.to(both.device)].unbind()
        mask = self._mask.to(query.device)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


class _GatherPositions(Function):
    """(..., positions, features) of every rank, end to end; backward adds up and scatters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        size = dist.get_world_size(group)
        parts = x.new_empty((size, *x.shape))
        dist.all_gather_single(parts.view(size * x.shape[0], *x.shape[1:]), x.contiguous(), group=group)
        return torch.cat(parts.unbind(), dim=-2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        size = dist.get_world_size(ctx.group)
        parts = torch.stack(gradient.chunk(size, dim=-2))
        mine = parts.new_empty(parts.shape[1:])
        flat = parts.view(size * parts.shape[1], *parts.shape[2:])
        reduce_scatter_sum(mine, flat, ctx.group)
        return mine, None


class UlyssesAttention(nn.Module):
    def __init__(self, group: dist.ProcessGroup, positions: list[Tensor], rank: int) -> None:
        super().__init__()
        self._group = group
        self._order = torch.cat(positions).argsort()
        self._back = self._order.argsort()

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        order = self._order.to(query.device)
        query, key, value = (self._to_heads(x)[:, :, order] for x in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self._to_positions(mixed[:, :, self._back.to(mixed.device)])

    def _to_heads(self, x: Tensor) -> Tensor:
        """(batch, heads, this rank's positions, size) -> (batch, this rank's heads, all positions, size)."""
        size = dist.get_world_size(self._group)
        traded = _trade(torch.stack(x.chunk(size, dim=1)), self._group)
        return torch.cat(traded.unbind(), dim=2)

    def _to_positions(self, x: Tensor) -> Tensor:
        size = dist.get_world_size(self._group)
        traded = _trade(torch.stack(x.chunk(size, dim=2)), self._group)
        return torch.cat(traded.unbind(), dim=1)


def _trade(blocks: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Block r of `blocks` (ranks, ...) to rank r; its own adjoint."""
    return cast(Tensor, _Trade.apply(blocks, group))  # type: ignore[no-untyped-call]


class _Trade(Function):
    @staticmethod
    def forward(ctx: Any, blocks: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        received = torch.empty_like(blocks, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, blocks.contiguous(), group=group)
        return received

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _trade(gradient, ctx.group), None


class RingAttention(nn.Module):
    def __init__(self, group: dist.ProcessGroup, positions: list[Tensor], rank: int) -> None:
        super().__init__()
        self._ring = _Ring(group, positions, rank)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return cast(Tensor, _RingAttention.apply(query, key, value, self._ring))  # type: ignore[no-untyped-call]


class _Ring:
    """Blocks of keys and values on their way: after `n` passes a rank has the block of the rank `n` before it."""

    def __init__(self, group: dist.ProcessGroup, positions: list[Tensor], rank: int) -> None:
        self.size, self._rank = len(positions), rank
        self._group = group
        self._next = dist.get_global_rank(group, (rank + 1) % self.size)
        self._previous = dist.get_global_rank(group, (rank - 1) % self.size)
        mine = positions[rank].unsqueeze(1)
        self._masks = [mine >= positions[(rank - n) % self.size].unsqueeze(0) for n in range(self.size)]

    def mask(self, passes: int, device: torch.device) -> Tensor:
        """Which keys of the block that arrived after `passes` each query sees."""
        return self._masks[passes].to(device)

    def begin_pass(self, block: Tensor) -> tuple[Tensor, list[dist.Work]]:
        """Starts to hand `block` on; the tensor holds the next block once the works are done."""
        arriving = torch.empty_like(block)
        operations = [
            dist.P2POp(dist.isend, block, self._next, group=self._group),
            dist.P2POp(dist.irecv, arriving, self._previous, group=self._group),
        ]
        return arriving, list(dist.batch_isend_irecv(operations))


class _RingAttention(Function):
    """Blockwise attention with an online softmax; backward computes each block's probabilities again from the saved
    log-sum-exp (Dao et al. 2022, FlashAttention, algorithm 4), while gradients of keys and values travel along."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ring: _Ring) -> Tensor:
        grouped = _grouped(query, key)
        block = torch.stack((key, value)).contiguous()
        output = torch.zeros_like(grouped, dtype=_wide(query.dtype))
        logsum = output.new_full(output.shape[:-1], float("-inf"))
        for passes in range(ring.size):
            arriving, works = ring.begin_pass(block) if passes < ring.size - 1 else (block, [])
            scores = _scores(grouped, block[0], ring.mask(passes, query.device))
            block_logsum = scores.logsumexp(dim=-1)
            merged = torch.logaddexp(logsum, block_logsum)
            weights = (scores - merged.unsqueeze(-1)).exp()
            output = output * (logsum - merged).exp().unsqueeze(-1) + weights @ _keys(block[1]).to(
                weights.dtype
            )
            logsum = merged
            for work in works:
                work.wait()
            block = arriving
        ctx.ring = ring
        ctx.save_for_backward(query, key, value, output, logsum)
        return output.view(query.shape).to(query.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, output, logsum = ctx.saved_tensors
        ring: _Ring = ctx.ring
        grouped = _grouped(query, key).to(output.dtype)
        upstream = gradient.reshape(output.shape).to(output.dtype)
        scale = query.shape[-1] ** -0.5
        rowsum = (upstream * output).sum(dim=-1, keepdim=True)
        query_gradient = torch.zeros_like(grouped)
        # Keys, values and what their gradients are so far travel together, all the way round.
        block = torch.stack((key, value)).to(output.dtype)
        block = torch.cat((block, torch.zeros_like(block)))
        for passes in range(ring.size):
            keys, values = _keys(block[0]), _keys(block[1])
            scores = _scores(grouped, block[0], ring.mask(passes, query.device))
            weights = (scores - logsum.unsqueeze(-1)).exp()
            score_gradient = weights * (upstream @ values.transpose(-1, -2) - rowsum) * scale
            query_gradient += score_gradient @ keys
            block[2] += (score_gradient.transpose(-1, -2) @ grouped).sum(dim=2)
            block[3] += (weights.transpose(-1, -2) @ upstream).sum(dim=2)
            arriving, works = ring.begin_pass(block)
            for work in works:
                work.wait()
            block = arriving
        return (
            query_gradient.view(query.shape).to(query.dtype),
            block[2].to(key.dtype),
            block[3].to(value.dtype),
            None,
        )


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _grouped(query: Tensor, key: Tensor) -> Tensor:
    """(batch, heads, ...) -> (batch, key heads, queries a key head, ...)."""
    return query.reshape(query.shape[0], key.shape[1], -1, *query.shape[2:])


def _keys(key: Tensor) -> Tensor:
    """(batch, key heads, positions, size) with a dimension for the queries that share a head."""
    return key.unsqueeze(2)


def _scores(grouped: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """Scaled scores of a block, in float32 at least; what a query must not see is minus infinity."""
    wide = _wide(grouped.dtype)
    scores: Tensor = grouped.to(wide) @ _keys(key).to(wide).transpose(-1, -2) * grouped.shape[-1] ** -0.5
    return scores.masked_fill(~mask, float("-inf"))


_METHODS = {
    ContextMethod.ALL_GATHER: AllGatherAttention,
    ContextMethod.RING: RingAttention,
    ContextMethod.ULYSSES: UlyssesAttention,
}
