"""The optimizer's step on the host (Ren et al. 2021, ZeRO-Offload): states wait in host memory or on disk, values and
gradients come over in batches, are stepped there by the same kernels as on a CPU, and the values go back.

Parameters stay where the model has them, in float32, so the host keeps no second copy of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from actors.training import device as devices
from actors.training.offload.disk import DiskStates, aligned
from actors.training.offload.pool import HostPool
from actors.training.optimizer import RankOptimizer, batches
from actors.training.parallel.layout import local
from orchestrator.spec.sections import OptimizerSpec, TrainingSpec


class Home(Protocol):
    """Where states live."""

    def zeros(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """A state to begin with, on the host."""


class HostMemory:
    def zeros(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype)


def build_optimizer(
    named: Sequence[tuple[str, nn.Parameter]], training: TrainingSpec, device: torch.device, *, rank: int
) -> RankOptimizer:
    """The optimizer of a rank's parameters, its states where the job says.

    OffloadDirectoryError when they are to lie on a disk that cannot take them.
    """
    offload = training.offload
    if offload.optimizer == "none":
        return RankOptimizer(named, training.optimizer)

    def home(size_bytes: int) -> Home:
        if offload.optimizer == "host" or size_bytes == 0:  # all of a stage may be frozen
            return HostMemory()
        assert offload.directory is not None, "the spec's rules ask for it"
        return DiskStates(Path(offload.directory), size_bytes=size_bytes, rank=rank)

    # The pool is shared with offloaded activations, half each.
    limit_bytes = offload.pinned_pool_mb * 1_000_000 // (2 if offload.activations else 1)
    return OffloadedOptimizer(named, training.optimizer, home=home, limit_bytes=limit_bytes, device=device)


class OffloadedOptimizer(RankOptimizer):
    """Steps stand-ins on the host. A stand-in has its parameter's shape, and values only while its batch is stepped."""

    def __init__(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        spec: OptimizerSpec,
        *,
        home: Callable[[int], Home],
        limit_bytes: int,
        device: torch.device,
    ) -> None:
        """`home` makes the place for states of so many bytes; `limit_bytes` of pinned memory are used at most."""
        self._parameters = [parameter for _, parameter in named]
        self._stand_ins: dict[Tensor, nn.Parameter] = {
            p: nn.Parameter(_without_values(p)) for p in self._parameters
        }
        super().__init__([(name, self._stand_ins[p]) for name, p in named], spec)
        self._device = device
        self._pool = HostPool(limit_bytes, device=device)
        # A parameter's value and its gradient travel together.
        self._batches = list(batches(self._parameters, limit_bytes // 2))
        stand_ins = list(self._stand_ins.values())
        self._home = home(sum(_state_bytes(p, len(self._quantities(p))) for p in stand_ins))
        for stand_in in stand_ins:
            super().state(stand_in)

    def step(self, rate: float) -> None:
        for batch in self._batches:
            self._step_batch([p for p in batch if p.grad is not None], rate)

    def zero_grad(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def state(self, parameter: Tensor) -> dict[str, Tensor]:
        """On the host, shaped like this rank's part of the parameter."""
        return super().state(self._stand_ins[parameter])

    def _zeros(self, parameter: Tensor) -> Tensor:
        return self._home.zeros(parameter.shape, parameter.dtype)

    @torch.no_grad()
    def _step_batch(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        if not parameters:
            return
        values = [self._to_host(local(p), p.dtype) for p in parameters]
        gradients = [self._to_host(local(p.grad), p.dtype) for p in parameters if p.grad is not None]
        devices.synchronize(self._device)
        for parameter, value, gradient in zip(parameters, values, gradients, strict=True):
            stand_in = self._stand_ins[parameter]
            stand_in.data, stand_in.grad = value, gradient
        super().step(rate)
        for parameter, value, gradient in zip(parameters, values, gradients, strict=True):
            local(parameter).copy_(value, non_blocking=True)
            stand_in = self._stand_ins[parameter]
            stand_in.grad, stand_in.data = None, _without_values(parameter)
            self._pool.give_back(value)
            self._pool.give_back(gradient)

    def _to_host(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        host = self._pool.take(tensor.numel(), dtype).view(tensor.shape)
        return host.copy_(tensor, non_blocking=True)


def _without_values(parameter: nn.Parameter) -> Tensor:
    """A host tensor of the shape and format of this rank's part, one element in memory."""
    part = local(parameter)
    return torch.zeros((), dtype=part.dtype).expand(part.shape)


def _state_bytes(parameter: Tensor, quantities: int) -> int:
    return quantities * aligned(parameter.numel() * parameter.element_size())
