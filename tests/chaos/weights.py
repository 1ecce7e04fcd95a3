"""Final checkpoints of two runs of a job, compared tensor by tensor."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

RELATIVE = 1e-9
"""Against the largest value of the tensor, in fp64, where sums were taken in another order."""


def read(checkpoint: Path) -> dict[str, Any]:
    """Everything in a checkpoint by name: parameters, optimizer state, counters."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.pt"
        dcp_to_torch_save(checkpoint, whole)
        return _flat("", torch.load(whole, weights_only=False))


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list | tuple):
        parts = dict(enumerate(value)).items()
    else:
        return {prefix: value}
    return {name: leaf for key, part in parts for name, leaf in _flat(f"{prefix}/{key}", part).items()}


def differing(one: dict[str, Any], other: dict[str, Any], *, exact: bool) -> list[str]:
    """Names whose values differ: to the bit, or by more than `RELATIVE`."""
    names = sorted(one.keys() ^ other.keys())
    return names + [
        name for name in sorted(one.keys() & other.keys()) if not _same(one[name], other[name], exact)
    ]


def _same(one: Any, other: Any, exact: bool) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if exact or not one.is_floating_point():
        return one.numpy().tobytes() == other.numpy().tobytes()
    scale = float(one.abs().max()) if one.numel() else 0.0
    return bool(((one - other).abs() <= RELATIVE * scale).all())
