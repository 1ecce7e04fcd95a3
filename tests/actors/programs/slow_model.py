"""A user's model that computes its forward twice on one rank: a third more of forward and backward, really computed."""

from __future__ import annotations

import os
from typing import Any

import torch
from own_model import Model
from torch import Tensor, nn


class Slow(Model):
    """`slow_rank`: who does it, from its `after`-th forward on; None: nobody."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._slow = int(os.environ["RANK"]) == options["slow_rank"]
        self._after = options.get("after", 0)
        self._forwards = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self._forwards += self.training
        if self._slow and self.training and self._forwards > self._after:
            with torch.no_grad():
                super().forward(tokens)
        return super().forward(tokens)


def build(options: dict[str, Any]) -> nn.Module:
    return Slow(options)
