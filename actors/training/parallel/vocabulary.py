"""Embedding and cross-entropy on a vocabulary that is split over tp ranks (Shoeybi et al. 2019, section 3).

Shares may differ in size, so the vocabulary need not divide by tp.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.parallel.layout import Span


class VocabularyEmbedding(nn.Module):
    """Rows of the tokens in `span`, zeros for all others: added up over the ranks they are the embedding."""

    def __init__(self, weight: nn.Parameter, span: Span) -> None:
        super().__init__()
        self.weight = weight
        self._span = span

    def forward(self, tokens: Tensor) -> Tensor:
        rows = tokens - self._span.start
        foreign = (rows < 0) | (rows >= self._span.length)
        return F.embedding(rows.masked_fill(foreign, 0), self.weight).masked_fill(foreign.unsqueeze(-1), 0.0)


def sharded_cross_entropy(
    logits: Tensor, targets: Tensor, *, span: Span, ignored: int, group: dist.ProcessGroup
) -> Tensor:
    """Summed cross-entropy of (tokens, this rank's share of the vocabulary) against (tokens,); the same on every rank.

    Logits are never gathered: three numbers a token cross the group (largest logit; sum of exponentials and the
    target's logit together).
    """
    return cast(Tensor, _CrossEntropy.apply(logits, targets, span, ignored, group))  # type: ignore[no-untyped-call]


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, span: Span, ignored: int, group: dist.ProcessGroup
    ) -> Tensor:
        largest = logits.max(dim=-1).values
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=group)
        shifted = logits - largest.unsqueeze(-1)
        columns = targets - span.start
        mine = (columns >= 0) & (columns < span.length)
        columns = columns.masked_fill(~mine, 0)
        exponentials = shifted.exp()
        chosen = shifted.gather(-1, columns.unsqueeze(-1)).squeeze(-1).masked_fill(~mine, 0.0)
        sums = torch.stack((exponentials.sum(dim=-1), chosen))
        dist.all_reduce(sums, group=group)
        total, chosen = sums
        counted = targets != ignored
        ctx.save_for_backward(exponentials.div_(total.unsqueeze(-1)), columns, mine, counted)
        return torch.where(counted, total.log() - chosen, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        probabilities, columns, mine, counted = ctx.saved_tensors
        result = probabilities.scatter_add(
            -1, columns.unsqueeze(-1), -mine.to(probabilities.dtype).unsqueeze(-1)
        )
        return result * (counted * gradient).unsqueeze(-1), None, None, None, None
