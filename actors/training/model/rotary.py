"""Rotary positions (Su et al. 2021, RoFormer) and their scaling to longer contexts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from orchestrator.spec.sections import ModelSpec, RopeScalingSpec


def rotary_table(spec: ModelSpec, positions: Tensor) -> Tensor:
    """Cosines and sines at `positions`, shape (2, positions, head size / 2), float64 so that all formats round the same
    angles (eq. 34)."""
    size = spec.size_of_head
    frequency = spec.rope_theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    if spec.rope_scaling is not None:
        frequency = _scaled(frequency, spec.rope_scaling)
    angle = torch.outer(positions.double(), frequency)
    return torch.stack((angle.cos(), angle.sin()))


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotates the pairs (i, i + head_size / 2) of `x` (batch, heads, positions, head_size)."""
    cos, sin = table[0], table[1]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def _scaled(frequency: Tensor, scaling: RopeScalingSpec) -> Tensor:
    """Frequencies for contexts `factor` times as long.

    `llama3`: wavelengths shorter than original / high stay, those longer than original / low are divided by `factor`,
    those between are interpolated (Llama 3 reference).
    """
    if scaling.kind == "linear":
        return frequency / scaling.factor
    turns = scaling.original_positions * frequency / (2 * math.pi)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return frequency * (kept + (1.0 - kept) / scaling.factor)
