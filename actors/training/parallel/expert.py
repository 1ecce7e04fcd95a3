"""Expert parallelism: each rank of an ep group holds some experts of a layer, and rows travel to them and back
(Lepikhin et al. 2021, GShard; dropless as in Gale et al. 2023, MegaBlocks).

Two all-to-alls forward, two backward. Rows arrive sorted by sender, then by expert; they are sorted by expert alone
before the grouped product. Experts are not tensor-parallel: with tp and sequence parallelism every tp rank sends its
own positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function

from actors.training.model.decoder import Decoder
from actors.training.model.moe import Experts, MoeFeedForward
from actors.training.parallel.context import positions_of
from actors.training.parallel.layout import ParameterLayout, Span
from actors.training.parallel.mesh import RankMesh


def apply_expert_parallel(
    part: Decoder,
    layouts: dict[str, ParameterLayout],
    mesh: RankMesh,
    *,
    positions: int,
    auxiliary_weight: float,
    loss_scale: Callable[[], float],
) -> None:
    """Cuts the experts of `part` (on the meta device) to this rank's and installs the exchange.

    `positions` of a whole sequence; `auxiliary_weight`: weight of one sequence's auxiliary loss, before `loss_scale`.
    """
    if mesh.expert is None or mesh.sequence is None:
        return
    group, size = mesh.expert.group("ep"), mesh.expert.size("ep")
    shared = mesh.sequence.size("sequence") > 1
    for index, layer in part.layers.items():
        moe = layer.get_submodule("feed_forward")
        if not isinstance(moe, MoeFeedForward):
            continue
        span = Span(moe.spec.experts, size, mesh.expert.coordinates["ep"])
        for name, parameter in list(moe.experts.named_parameters()):
            layout = ParameterLayout(tuple(parameter.shape), expert=True)
            if size > 1:
                layout = layout.cut("ep", 0, span)
                moe.experts.register_parameter(name, nn.Parameter(layout.shard(parameter.detach()).clone()))
            layouts[f"layers.{index}.feed_forward.experts.{name}"] = layout
        moe.auxiliary_weight = auxiliary_weight
        moe.loss_scale = loss_scale
        if size > 1:
            moe.exchange = ExpertExchange(group)
        if shared:
            moe.sequence = SharedSequence(mesh, positions)


class SharedSequence:
    """The positions of a sequence are spread over cp and, with sequence parallelism, tp ranks."""

    def __init__(self, mesh: RankMesh, positions: int) -> None:
        assert mesh.sequence is not None
        plan = mesh.parallelism
        self._group = mesh.sequence.group("sequence")
        self._size = mesh.sequence.size("sequence")
        by_rank = [
            positions_of(positions, cp=plan.cp, index=c).chunk(plan.tp)[t]
            for c in range(plan.cp)
            for t in range(plan.tp)
        ]
        self._mine = by_rank[mesh.sequence.coordinates["sequence"]]
        self._order = torch.cat(by_rank).argsort()

    def total(self, counts: Tensor) -> Tensor:
        dist.all_reduce(counts, group=self._group)
        return counts

    def whole(self, x: Tensor) -> Tensor:
        parts = [torch.empty_like(x) for _ in range(self._size)]
        dist.all_gather(parts, x.contiguous(), group=self._group)
        return torch.cat(parts, dim=1)[:, self._order.to(x.device)]

    def mine(self, x: Tensor) -> Tensor:
        return x[:, self._mine.to(x.device)]


class ExpertExchange:
    """Rows to the ranks that hold their experts, and back."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._size = dist.get_world_size(group)

    def __call__(self, experts: Experts, rows: Tensor, counts: Tensor) -> Tensor:
        sent = counts.view(self._size, -1)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent.contiguous(), group=self._group)
        outgoing, incoming = sent.sum(dim=1).tolist(), received.sum(dim=1).tolist()
        arrived = exchange_rows(rows, outgoing, incoming, self._group)
        expert = torch.arange(received.shape[1], device=rows.device).repeat(self._size)
        by_expert = expert.repeat_interleave(received.flatten()).argsort(stable=True)
        results = experts(arrived[by_expert], received.sum(dim=0))
        by_sender = torch.empty_like(results).index_copy(0, by_expert, results)
        return exchange_rows(by_sender, incoming, outgoing, self._group)


def exchange_rows(rows: Tensor, outgoing: list[int], incoming: list[int], group: dist.ProcessGroup) -> Tensor:
    """All-to-all of rows (n, features): `outgoing[r]` go to rank r, `incoming[r]` come from it."""
    return cast(Tensor, _ExchangeRows.apply(rows, outgoing, incoming, group))  # type: ignore[no-untyped-call]


class _ExchangeRows(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, outgoing: list[int], incoming: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        ctx.outgoing, ctx.incoming, ctx.group = outgoing, incoming, group
        return _exchange(rows, outgoing, incoming, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchange(gradient, ctx.incoming, ctx.outgoing, ctx.group), None, None, None


def _exchange(rows: Tensor, outgoing: list[int], incoming: list[int], group: dist.ProcessGroup) -> Tensor:
    arrived = rows.new_empty((sum(incoming), *rows.shape[1:]))
    dist.all_to_all_single(arrived, rows.contiguous(), incoming, outgoing, group=group)
    return arrived
