"""Snapshots of a state dict on the CPU, so that training may go on while the snapshot is written."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

_CPU = torch.device("cpu")


def snapshot(value: Any) -> Any:
    """A copy of a nested state dict whose tensors lie on the CPU and share no memory with the original.

    A DTensor keeps its placement and holds this rank's shard alone; nothing is communicated.
    """
    if isinstance(value, DTensor):
        local = value.to_local().detach().to(_CPU, copy=True)
        return DTensor(local, value._spec, requires_grad=False)  # type: ignore[no-untyped-call]
    if isinstance(value, torch.Tensor):
        return value.detach().to(_CPU, copy=True)
    if isinstance(value, Mapping):
        return {key: snapshot(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(snapshot(item) for item in value)
    return copy.deepcopy(value)


def _tensors(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, DTensor):
        yield path, value.to_local()
    elif isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{path}[{index}]")


def non_finite(state: Any) -> str | None:
    """The name of the first tensor of this rank that holds NaN or infinity, with how many; None when all
    are finite.
    """
    for name, tensor in _tensors(state, ""):
        if not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        wide = tensor.float() if tensor.element_size() == 1 else tensor  # float8 has no isfinite
        finite = torch.isfinite(wide)
        if not bool(finite.all()):
            return f"{name} has {int((~finite).sum())} non-finite of {tensor.numel()} values"
    return None
