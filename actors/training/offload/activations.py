"""Activations wait for their backward in host memory: what autograd saves inside a layer is copied over as it is saved
and comes back when backward asks for it.

Parameters stay: they are on the device anyway. So do small tensors, whose transfer would cost more than they hold. What
comes back has the same values and the same strides, so backward takes the same kernels and gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from actors.training.model.part import Part
from actors.training.offload.pool import HostPool
from actors.training.parallel.layout import local
from orchestrator.spec.sections import OffloadSpec

SMALLEST_BYTES = 4096
SPARSEST = 2
"""A view that spans more than so many times its elements stays: its gaps would travel with it."""


def activation_pool(offload: OffloadSpec, device: torch.device) -> HostPool | None:
    """The pool of a rank for what waits; None when activations stay on the device."""
    if not offload.activations:
        return None
    # Shared with the offloaded optimizer, half each.
    parts = 1 if offload.optimizer == "none" else 2
    return HostPool(offload.pinned_pool_mb * 1_000_000 // parts, device=device)


def install_activation_offload(part: Part, pool: HostPool) -> None:
    """Wraps the forward of every block, outside whatever recomputes inside it: then its inputs alone are saved."""
    for block in part.blocks.values():
        _wrap(block, pool)


def _wrap(layer: nn.Module, pool: HostPool) -> None:
    forward = layer.forward

    def pack(tensor: Tensor) -> Tensor | _Waiting:
        return _Waiting(tensor, pool) if _worth_it(tensor, layer) else tensor

    @wraps(forward)
    def offloaded(*arguments: Any, **named: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
            return forward(*arguments, **named)

    layer.forward = offloaded


def _unpack(saved: Tensor | _Waiting) -> Tensor:
    return saved.back() if isinstance(saved, _Waiting) else saved


class _Waiting:
    """A saved tensor on the host. Its buffer goes back to the pool when autograd lets go of it."""

    __slots__ = ("_device", "_host", "_pool", "_size", "_stride")

    @torch.no_grad()
    def __init__(self, tensor: Tensor, pool: HostPool) -> None:
        self._pool = pool
        self._device, self._size, self._stride = tensor.device, tensor.size(), tensor.stride()
        span = _span(tensor)
        self._host = pool.take(span, tensor.dtype)
        self._host.copy_(tensor.as_strided((span,), (1,)), non_blocking=True)

    @torch.no_grad()
    def back(self) -> Tensor:
        """A copy on the device. May be asked for more than once: a split backward does."""
        flat = self._host.to(self._device, non_blocking=True, copy=True)
        return flat.as_strided(self._size, self._stride)

    def __del__(self) -> None:
        self._pool.give_back(self._host)


def _span(tensor: Tensor) -> int:
    """Elements of memory from the first to the last one of a tensor."""
    return 1 + sum((n - 1) * step for n, step in zip(tensor.size(), tensor.stride(), strict=True))


def _worth_it(tensor: Tensor, layer: nn.Module) -> bool:
    size = tensor.numel() * tensor.element_size()
    if size < SMALLEST_BYTES or _span(tensor) > SPARSEST * tensor.numel():
        return False
    address = tensor.untyped_storage().data_ptr()
    for parameter in _now(layer):
        if parameter.untyped_storage().data_ptr() == address:
            return False
        # A parameter that autocast put into a short format, or its transpose.
        if parameter.dtype != tensor.dtype and tensor.shape in (parameter.shape, parameter.shape[::-1]):
            return False
    return True


def _now(layer: nn.Module) -> Iterator[Tensor]:
    """The parameters as they are while forward runs: with ZeRO the gathered ones, which come and go."""
    for parameter in layer.parameters():
        yield local(parameter)
