"""A user's model that computes its forward more than once on one rank: once more is a third more of forward and
backward, really computed."""

from __future__ import annotations

import os
from typing import Any

import torch
from own_model import Model
from torch import Tensor, nn


class Slow(Model):
    """`slow_rank`: who does it, from its `after`-th forward on; None: nobody. `slow_raylet` instead: the first rank of
    the node whose raylet has this process id, whichever rank that is. `times`: how often more."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._slow = int(os.environ["RANK"]) == options.get("slow_rank")
        if (raylet := options.get("slow_raylet")) is not None:
            first = os.environ["LOCAL_RANK"] == "0"
            self._slow = first and os.environ["RAY_RAYLET_PID"] == str(raylet)
        self._after = options.get("after", 0)
        self._times = options.get("times", 1)
        self._forwards = 0

    def forward(self, tokens: Tensor) -> Tensor:
        self._forwards += self.training
        if self._slow and self.training and self._forwards > self._after:
            with torch.no_grad():
                for _ in range(self._times):
                    super().forward(tokens)
        return super().forward(tokens)


def build(options: dict[str, Any]) -> nn.Module:
    return Slow(options)
