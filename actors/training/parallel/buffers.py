"""Many tensors in one collective: laid end to end, and put back."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def join(tensors: Sequence[Tensor]) -> Tensor:
    """One flat tensor with the elements of all, in order; a copy."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Views of `flat` in the shapes of `like`; the inverse of `join`."""
    pieces = torch.split(flat, [tensor.numel() for tensor in like])
    return [piece.view(tensor.shape) for piece, tensor in zip(pieces, like, strict=True)]


def put_back(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Writes the elements of `flat` over those of `tensors`, which `join` has read."""
    torch._foreach_copy_(list(tensors), split(flat, tensors))
