"""Initial values: every parameter is a function of (seed, its name), so no plan changes them and no rank needs to be
told them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from actors.training.model.decoder import Decoder
from actors.training.parallel.layout import Layouts, local
from actors.training.seeds import generator

RESIDUAL_OUTPUTS = (
    "attention.output.weight",
    "feed_forward.down.weight",
    "experts.down",
    "shared.down.weight",
)
"""Projections that add to the residual stream; there are two a layer."""


def initial_value(name: str, shape: tuple[int, ...], *, seed: int, layers: int) -> Tensor:
    """The full float32 value of the parameter `name`, drawn on the CPU.

    Norms start at one, biases at zero; the embedding at N(0, 1) / 2, the scale RMSNorm makes of it anyway; matrices at
    N(0, 1 / fan-in); those that write into the residual stream are smaller by sqrt(2 x layers), so that its variance
    does not grow with depth (Radford et al. 2019, section 2.3). Float32 whatever the parameter's format: all precisions
    start from the same numbers.
    """
    if len(shape) == 1:
        return torch.zeros(shape) if name.endswith(".bias") else torch.ones(shape)
    if name == "embedding.weight":
        deviation = 0.5
    else:
        deviation = 1.0 / math.sqrt(shape[-1])
        if name.endswith(RESIDUAL_OUTPUTS):
            deviation /= math.sqrt(2 * layers)
    return torch.empty(shape).normal_(0.0, deviation, generator=generator(seed, name))


@torch.no_grad()
def initialize(part: Decoder, layouts: Layouts, *, seed: int) -> None:
    """Fills every parameter of `part` without communication: each rank draws the whole and keeps its slice."""
    for name, parameter in part.named_parameters():
        layout = layouts[name]
        whole = initial_value(name, layout.shape, seed=seed, layers=part.spec.layers)
        local(parameter).copy_(layout.shard(whole))
