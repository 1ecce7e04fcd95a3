"""What a user's function may give that cannot be trained."""

from __future__ import annotations

import time
from typing import Any

import torch
from own_model import Block, Embed, Model
from torch import Tensor, nn

nothing = None
text = "a text"


def raises(options: dict[str, Any]) -> nn.Module:
    raise RuntimeError(f"no {options['what']}\nat all")


def leaves(options: dict[str, Any]) -> nn.Module:
    raise SystemExit(3)


def no_module(options: dict[str, Any]) -> list[int]:
    return [1]


def empty(options: dict[str, Any]) -> nn.Module:
    return nn.Identity()


def wrong_parameters(options: dict[str, Any]) -> nn.Module:
    model = Model({})
    model.scale = nn.Parameter(torch.tensor(1.0))
    model.batch = nn.BatchNorm1d(4)
    model.nowhere = nn.Linear(4, 4, device="meta")
    return model


def unused(options: dict[str, Any]) -> nn.Module:
    model = Model({})
    model.spare = nn.Linear(4, 4)
    return model


class Peeks(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.max() > 3:
            tokens = tokens * 0
        return super().forward(tokens)


def peeks(options: dict[str, Any]) -> nn.Module:
    return Peeks({})


def other_vocabulary(options: dict[str, Any]) -> nn.Module:
    return Model({"vocabulary": 300})


class Scaled(Model):
    """Does more than its modules one after the other."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = 4 * self.embed(tokens)
        for layer in self.trunk.layers:
            x = layer(x)
        return self.head(self.norm(x))


def scaled(options: dict[str, Any]) -> nn.Module:
    return Scaled({})


class Loose(Model):
    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.start = nn.Parameter(torch.zeros(16))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.start
        for layer in self.trunk.layers:
            x = layer(x)
        return self.head(self.norm(x))


def loose(options: dict[str, Any]) -> nn.Module:
    return Loose({})


def same_block(options: dict[str, Any]) -> nn.Module:
    model = Model({})
    model.trunk.layers = nn.ModuleList([Block(16, 4, 0.0)] * 2)
    return model


def tied_blocks(options: dict[str, Any]) -> nn.Module:
    model = Model({})
    model.trunk.layers[1].up = model.trunk.layers[0].up
    return model


class Skips(Model):
    """A residual goes past the region that tensor parallelism splits, into its middle."""

    def __init__(self) -> None:
        super().__init__({"depth": 0})
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        x = x + self.down(self.up(x) * x[..., :1])
        return self.head(self.norm(x))


def skips(options: dict[str, Any]) -> nn.Module:
    return Skips()


class Enters(Skips):
    """What a split region gives goes into another one past its entry."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        gate = self.down(self.up(x))
        return self.head(self.norm(self.narrow(self.wide(x) * gate[..., :1])))


def enters(options: dict[str, Any]) -> nn.Module:
    return Enters()


def of_the_clock(options: dict[str, Any]) -> nn.Module:
    """Other values on every rank."""
    torch.manual_seed(time.monotonic_ns())
    return Model({})


__all__ = ["Embed"]
