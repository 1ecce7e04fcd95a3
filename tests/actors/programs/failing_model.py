"""A user's model that raises at the `after`-th forward of each attempt's training."""

from __future__ import annotations

from typing import Any

from own_model import Model
from torch import Tensor, nn


class Fails(Model):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__({})
        self._left = options["after"]

    def forward(self, tokens: Tensor) -> Tensor:
        self._left -= self.training
        if self._left < 0:
            raise RuntimeError("a defect of the model")
        return super().forward(tokens)


def build(options: dict[str, Any]) -> nn.Module:
    return Fails(options)
