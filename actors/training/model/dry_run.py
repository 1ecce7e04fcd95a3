"""A model run on the meta device: shapes, gradients and products of a step without its memory or its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

Operation = tuple[str, tuple[int, ...] | None]
"""Name and shape of the result."""


@dataclass(frozen=True)
class DryRun:
    output: Any
    """What the module returned: on the meta device, with its graph."""
    parameters: dict[str, Tensor]
    """The leaves of the graph, by the names of the parameters they stand for."""
    operations: tuple[Operation, ...]


def dry_run(module: nn.Module, x: Tensor, *, frozen: bool = False) -> DryRun:
    """Calls `module` on `x`, a tensor on the meta device. Raises what the module raises.

    Every parameter has a gradient, or with `frozen` only those that require one.
    """
    parameters = {
        name: torch.empty_like(value, device="meta").requires_grad_(value.requires_grad or not frozen)
        for name, value in module.named_parameters()
    }
    buffers = {name: value.to("meta") for name, value in module.named_buffers()}
    with _Operations() as operations:
        output = functional_call(module, parameters | buffers, (x,))
    return DryRun(output, parameters, tuple(operations.found))


def without_gradient(run: DryRun) -> list[str]:
    """The parameters that take no part in the output."""
    gradients = torch.autograd.grad(
        run.output.sum(), list(run.parameters.values()), retain_graph=True, allow_unused=True
    )
    return [name for name, gradient in zip(run.parameters, gradients, strict=True) if gradient is None]


def step_flops(module: nn.Module, x: Tensor) -> int:
    """FLOPs of the products of forward and backward, all of attention's counted, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        dry_run(module, x, frozen=True).output.sum().backward()
    return int(counter.get_total_flops())


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.found.append((str(func), tuple(result.shape) if isinstance(result, Tensor) else None))
        return result
