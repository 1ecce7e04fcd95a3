"""Bytes that live tensors hold, by what they are: storages, each counted once."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from actors.training.parallel.layout import local


@dataclass(frozen=True)
class States:
    parameters: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


@dataclass
class Peak:
    """The sample with the largest total."""

    states: States = field(default_factory=lambda: States(0, 0, 0))
    samples: int = 0


def storages(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the distinct storages under `tensors`; one that was freed by resizing has none."""
    found = {}
    for tensor in tensors:
        if tensor is not None:
            storage = local(tensor).untyped_storage()
            if storage.nbytes():
                found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def live_states(engine: Any) -> States:
    parameters: list[Tensor | None] = [p for _, p in engine.named]
    gradients: list[Tensor | None] = [p.grad for _, p in engine.named]
    for part in engine.parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                for group in module._get_fsdp_state()._fsdp_param_groups:
                    for held in group.fsdp_params:
                        whole = getattr(held, "_unsharded_param", None)
                        parameters += [held.sharded_param, whole, *held.all_gather_outputs]
                        gradients += [held.sharded_param.grad, held.unsharded_accumulated_grad]
                        gradients += [] if whole is None else [whole.grad]
    moments = [
        value
        for optimizer in engine.optimizer.optimizers
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    ]
    return States(storages(parameters), storages(gradients), storages(moments))


@contextmanager
def watched(engine: Any) -> Iterator[Peak]:
    """Samples before and after every layer's forward and backward, and before and after the update."""
    peak = Peak()

    def sample(*_: Any) -> None:
        peak.samples += 1
        now = live_states(engine)
        if now.total > peak.states.total:
            peak.states = now

    def after_forward(_: torch.nn.Module, __: Any, output: Tensor) -> None:
        sample()
        if output.requires_grad:
            output.register_hook(sample)

    handles = [
        layer.register_forward_hook(after_forward) for part in engine.parts for layer in part.layers.values()
    ]
    add_up, update = engine._add_up, engine.optimizer.step

    def sampled_sums(*arguments: Any, **named: Any) -> Any:
        sample()
        result = add_up(*arguments, **named)
        sample()
        return result

    def sampled_update(rate: float) -> None:
        update(rate)
        sample()

    engine._add_up, engine.optimizer.step = sampled_sums, sampled_update
    yield peak
    engine._add_up, engine.optimizer.step = add_up, update
    for handle in handles:
        handle.remove()


def seen_by_python() -> dict[int, int]:
    """Bytes by storage of all tensors that Python code holds."""
    gc.collect()
    storages = (item.untyped_storage() for item in gc.get_objects() if issubclass(type(item), Tensor))
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}


@contextmanager
def saved_for_backward(besides: Iterable[Tensor]) -> Iterator[dict[int, int]]:
    """Bytes by storage of what autograd keeps for backward while it is open, without the storages of `besides`."""
    known = {tensor.untyped_storage().data_ptr() for tensor in besides}
    found: dict[int, int] = {}
    held: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known and storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)  # so that its memory is not another's before the end
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield found
