"""The loss of a micro-batch as its share of the step's mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.data.order import IGNORED
from actors.training.parallel.layout import Span
from actors.training.parallel.vocabulary import sharded_cross_entropy


@dataclass(frozen=True)
class TokenLoss:
    """Cross-entropy in nats, summed over a micro-batch and divided by the tokens of the whole step.

    Every micro-batch of every replica divides by the same number, so losses and gradients add up to the mean over the
    step's tokens by plain sums, whatever the number of replicas and micro-batches.
    """

    tokens: int
    span: Span | None = None
    """This rank's share of the vocabulary; None: all of it."""
    group: dist.ProcessGroup | None = None
    """The ranks that share the vocabulary."""
    scale: Callable[[], float] = lambda: 1.0
    """The factor that keeps fp16 gradients from vanishing, now."""

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Logits (batch, positions, this rank's vocabulary), targets (batch, positions)."""
        if logits.element_size() < 4:
            logits = logits.float()
        flat, wanted = logits.flatten(0, 1), targets.flatten()
        if self.span is None or self.group is None:
            total = F.cross_entropy(flat, wanted, reduction="sum", ignore_index=IGNORED)
        else:
            total = sharded_cross_entropy(flat, wanted, span=self.span, ignored=IGNORED, group=self.group)
        return total * (self.scale() / self.tokens)

    def summed(self) -> TokenLoss:
        """The same loss, not divided: for evaluation."""
        return replace(self, tokens=1, scale=lambda: 1.0)
