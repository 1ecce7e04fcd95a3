"""A mixture of experts: a router sends every token to its top k feed-forwards (Shazeer et al. 2017).

The layer holds no distributed code. What other ranks must take part in sits behind two seams: `exchange` carries rows
to the experts and back, `sequence` knows the rest of the sequences of which this rank holds some positions. All that
depends on more than one token is counted by sequence, so that no plan changes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.feed_forward import FeedForward
from orchestrator.spec.sections import ModelSpec, MoeSpec


class Experts(nn.Module):
    """SwiGLU feed-forwards side by side: (experts, outputs, inputs) weights, of all experts or of some."""

    def __init__(self, experts: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(experts, inner, hidden))
        self.up = nn.Parameter(torch.empty(experts, inner, hidden))
        self.down = nn.Parameter(torch.empty(experts, hidden, inner))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Rows (n, hidden) sorted by expert, `counts` of them for each."""
        inner = F.silu(_grouped(rows, self.gate, counts)) * _grouped(rows, self.up, counts)
        return _grouped(inner, self.down, counts)


def _grouped(rows: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """rows[group e] @ weight[e]ᵀ for every expert e."""
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        rows, weight = rows.to(dtype), weight.to(dtype)
    if rows.dtype is torch.float64:  # grouped_mm has no float64
        pieces = torch.split(rows, counts.tolist())
        return torch.cat([F.linear(piece, w) for piece, w in zip(pieces, weight.unbind(), strict=True)])
    return F.grouped_mm(rows, weight.transpose(1, 2), offs=counts.cumsum(0).to(torch.int32))


Exchange = Callable[[Experts, Tensor, Tensor], Tensor]
"""(experts, rows sorted by expert, rows of each of all experts) -> the experts' rows in the same order."""


class Sequence(Protocol):
    """The sequences of which this rank holds some positions."""

    def total(self, counts: Tensor) -> Tensor:
        """Sums over the ranks that share the sequences."""

    def whole(self, x: Tensor) -> Tensor:
        """(batch, this rank's positions, ...) -> (batch, all positions, ...) in their order. No gradient."""

    def mine(self, x: Tensor) -> Tensor:
        """The inverse of `whole`: this rank's positions."""


class OwnSequence:
    """This rank holds whole sequences."""

    def total(self, counts: Tensor) -> Tensor:
        return counts

    def whole(self, x: Tensor) -> Tensor:
        return x

    def mine(self, x: Tensor) -> Tensor:
        return x


def _own_experts(experts: Experts, rows: Tensor, counts: Tensor) -> Tensor:
    return cast(Tensor, experts(rows, counts))


class Router(nn.Module):
    """Scores of all experts for each token: softmax of a linear map, never below float32."""

    def __init__(self, hidden: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, hidden))

    def forward(self, x: Tensor) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(dtype), self.weight.to(dtype)).softmax(dim=-1)


class MoeFeedForward(nn.Module):
    bias: Tensor
    load: Tensor
    dropped: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        assert spec.moe is not None, "a layer without experts has a plain feed-forward"
        self.spec: MoeSpec = spec.moe
        inner = spec.moe.ffn_hidden or spec.ffn_hidden
        self.router = Router(spec.hidden, spec.moe.experts)
        self.experts = Experts(spec.moe.experts, spec.hidden, inner)
        shared = spec.moe.shared_experts
        self.shared = FeedForward(spec.hidden, shared * inner) if shared else None
        self.shared_gate = nn.Linear(spec.hidden, 1, bias=False) if spec.moe.shared_gate else None
        self.exchange: Exchange = _own_experts
        self.sequence: Sequence = OwnSequence()
        self.auxiliary_weight = 0.0
        """Weight of one sequence's auxiliary loss in the loss of the step."""
        self.loss_scale: Callable[[], float] = lambda: 1.0
        """The factor of the loss of the step, now: the auxiliary loss is a part of it."""
        self._counts = True
        for name in ("bias", "load", "dropped"):
            self.register_buffer(name, torch.zeros(spec.moe.experts), persistent=False)

    def refill_buffers(self, device: torch.device) -> None:
        """`bias`: added to the scores when experts are chosen. `load`, `dropped`: assignments of each expert since the
        step began, those that found it full among them. float64: counts are exact and sums have one order."""
        for name in ("bias", "load", "dropped"):
            setattr(self, name, torch.zeros(self.spec.experts, dtype=torch.float64, device=device))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.router(x)
        chosen = (scores + self.bias.to(scores.dtype)).topk(self.spec.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if self.spec.normalize_weights:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        counts = self._sequence_counts(chosen)
        if self.auxiliary_weight and torch.is_grad_enabled():
            weights = _Attach.apply(weights, self._auxiliary_loss(scores, counts))  # type: ignore[no-untyped-call]
        kept = None if self.spec.capacity_factor is None else self._within_capacity(chosen)
        if self.training and torch.is_grad_enabled() and self._counts:
            self._count(chosen, kept)
        mixed = self._mix(x, chosen, weights, kept)
        if self.shared is None:
            return mixed
        shared = cast(Tensor, self.shared(x))
        if self.shared_gate is not None:
            shared = self.shared_gate(x).sigmoid() * shared
        return mixed + shared

    @contextmanager
    def not_counting(self) -> Iterator[None]:
        """While a forward is computed again: its tokens have been counted."""
        self._counts = False
        try:
            yield
        finally:
            self._counts = True

    def _mix(self, x: Tensor, chosen: Tensor, weights: Tensor, kept: Tensor | None) -> Tensor:
        """Every assignment's row through its expert, weighted and added up for each token."""
        batch, positions, hidden = x.shape
        expert = chosen.flatten()
        slots = expert.argsort(stable=True)
        if kept is not None:
            slots = slots[kept.flatten()[slots]]
        counts = torch.bincount(expert[slots], minlength=self.spec.experts)
        rows = self.exchange(self.experts, x.flatten(0, 1)[slots // self.spec.top_k], counts)
        # Put back by slot and added over the k of a token: one order of additions on every device.
        by_slot = rows.new_zeros(expert.numel(), hidden).index_copy(0, slots, rows)
        by_token = by_slot.view(batch, positions, self.spec.top_k, hidden)
        return (by_token * weights.unsqueeze(-1)).sum(dim=2).to(x.dtype)

    def _sequence_counts(self, chosen: Tensor) -> Tensor:
        """Assignments of each expert in each whole sequence: (batch, experts)."""
        counts = torch.zeros(chosen.shape[0], self.spec.experts, dtype=torch.float64, device=chosen.device)
        ids = chosen.flatten(1)
        counts.scatter_add_(1, ids, torch.ones_like(ids, dtype=counts.dtype))
        if not self.auxiliary_weight:
            return counts
        return self.sequence.total(counts)

    def _auxiliary_loss(self, scores: Tensor, counts: Tensor) -> Tensor:
        """Fedus et al. 2022, eq. 4, by sequence: sum over experts of (share of assignments x mean score) x experts.

        The part of this rank's positions: only the scores carry a gradient, so parts of a sequence add up.
        """
        assignments = counts.sum(dim=-1, keepdim=True)
        share = (counts / assignments * self.spec.experts).to(scores.dtype)
        positions = assignments / self.spec.top_k
        mean = scores.sum(dim=1) / positions.to(scores.dtype)
        return (share * mean).sum() * (self.auxiliary_weight * self.loss_scale())

    def _within_capacity(self, chosen: Tensor) -> Tensor:
        """Which assignments (batch, positions, k) find room: earlier positions first, then the higher score."""
        whole = self.sequence.whole(chosen)
        assert self.spec.capacity_factor is not None
        slots = whole.flatten(1)
        capacity = math.ceil(slots.shape[1] / self.spec.experts * self.spec.capacity_factor)
        # Place of each slot in the queue of its expert.
        ahead = F.one_hot(slots, self.spec.experts).cumsum(dim=1).gather(-1, slots.unsqueeze(-1)).squeeze(-1)
        return self.sequence.mine((ahead <= capacity).view(whole.shape))

    @torch.no_grad()
    def _count(self, chosen: Tensor, kept: Tensor | None) -> None:
        ids = chosen.flatten()
        self.load += torch.bincount(ids, minlength=self.spec.experts)
        if kept is not None:
            self.dropped += torch.bincount(ids[~kept.flatten()], minlength=self.spec.experts)


class _Attach(Function):
    """Hangs a loss onto a tensor that the real loss depends on: backward gives it the gradient one."""

    @staticmethod
    def forward(ctx: Any, carrier: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return carrier.view_as(carrier)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = ctx.saved_tensors
        return gradient, torch.ones_like(loss)
