"""SwiGLU (Shazeer 2020)."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention


class FeedForward(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.down(F.silu(self.gate(x)) * self.up(x)))
