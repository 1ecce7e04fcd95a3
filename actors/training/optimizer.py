"""Optimizers with weight decay on matrices alone, and the learning rate as a function of the step.

They step in the format of the parameters. Gradients in a shorter one are converted some parameters at a time, so that
the long ones are never all there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from actors.training.parallel.layout import local
from orchestrator.spec.sections import OptimizerSpec

QUANTITIES = {
    torch.optim.AdamW: ("exp_avg", "exp_avg_sq"),
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.Muon: ("momentum_buffer",),
}
"""State of each parameter that is shaped like it, by torch's names."""
CONVERTED_BYTES = 25 << 20
"""Converted gradients that are there at once; a parameter with more goes alone."""


class RankOptimizer:
    """The optimizers of a rank's parameters, which share the learning rate."""

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], spec: OptimizerSpec) -> None:
        self.optimizers = _build(named, spec)
        self._owner = {
            parameter: optimizer
            for optimizer in self.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }

    def step(self, rate: float) -> None:
        short = {p: p.grad for p in self._owner if p.grad is not None and p.grad.dtype != p.dtype}
        if not short:
            self._step(rate)
            return
        self.zero_grad()
        for batch in batches(list(short), CONVERTED_BYTES):
            for parameter in batch:
                parameter.grad = short.pop(parameter).to(parameter.dtype)
            self._step(rate)
            self.zero_grad()

    def _step(self, rate: float) -> None:
        """Of the parameters that have a gradient."""
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def state(self, parameter: Tensor) -> dict[str, Tensor]:
        """The state of a parameter; before the first step what it would start from: zeros."""
        owner = self._owner[parameter]
        if not owner.state.get(parameter):
            zeros = {name: self._zeros(parameter) for name in self._quantities(parameter)}
            if isinstance(owner, torch.optim.AdamW):
                zeros["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            owner.state[parameter] = zeros
        return {name: value for name, value in owner.state[parameter].items() if isinstance(value, Tensor)}

    def _quantities(self, parameter: Tensor) -> tuple[str, ...]:
        return QUANTITIES[type(self._owner[parameter])]

    def _zeros(self, parameter: Tensor) -> Tensor:
        """A state of `parameter` to begin with."""
        return torch.zeros_like(parameter, memory_format=torch.preserve_format).detach()


def batches(parameters: Sequence[nn.Parameter], limit_bytes: int) -> Iterator[list[nn.Parameter]]:
    """Parameters of which this rank's parts have `limit_bytes` together at most; one that is larger goes alone."""
    batch: list[nn.Parameter] = []
    filled = 0
    for parameter in parameters:
        part = local(parameter)
        size = part.numel() * part.element_size()
        if batch and filled + size > limit_bytes:
            yield batch
            batch, filled = [], 0
        batch.append(parameter)
        filled += size
    if batch:
        yield batch


def _build(named: Sequence[tuple[str, nn.Parameter]], spec: OptimizerSpec) -> list[torch.optim.Optimizer]:
    parameters = [p for _, p in named]
    if not parameters:  # all of a stage may be frozen
        return []
    if spec.name == "sgd":
        return [torch.optim.SGD(_groups(parameters, spec), lr=spec.learning_rate, momentum=spec.momentum)]
    optimizers: list[torch.optim.Optimizer] = []
    if spec.name == "muon":
        matrices = [p for name, p in named if name.startswith("layers.") and p.dim() == 2]
        parameters = [p for p in parameters if not any(p is m for m in matrices)]
        if matrices:
            muon = torch.optim.Muon(
                matrices,
                lr=spec.learning_rate,
                momentum=spec.momentum,
                weight_decay=spec.weight_decay,
                # Updates of AdamW's size, so that both share one learning rate (Liu et al. 2025, eq. 4).
                adjust_lr_fn="match_rms_adamw",
            )
            optimizers.append(muon)
    if parameters:
        adamw = torch.optim.AdamW(
            _groups(parameters, spec), lr=spec.learning_rate, betas=spec.betas, eps=spec.eps, fused=True
        )
        optimizers.append(adamw)
    return optimizers


def _groups(parameters: Iterable[nn.Parameter], spec: OptimizerSpec) -> list[dict[str, object]]:
    """Matrices decay, vectors (norms, biases) do not."""
    by_decay: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in parameters:
        by_decay[parameter.dim() > 1].append(parameter)
    return [
        {"params": members, "weight_decay": spec.weight_decay if decays else 0.0}
        for decays, members in by_decay.items()
        if members
    ]


def learning_rate(spec: OptimizerSpec, *, step: int, steps: int) -> float:
    """Learning rate of step `step` (0-based) of `steps`.

    Linear warm-up that reaches the full rate with step `warmup_steps`, then constant; or half a cosine down to
    `min_learning_rate`, which it would reach with step `steps` (Loshchilov and Hutter 2017); or constant until the
    last `decay_steps`, over which it falls linearly to `min_learning_rate` (Hu et al. 2024, WSD).
    """
    if step < spec.warmup_steps:
        return spec.learning_rate * (step + 1) / (spec.warmup_steps + 1)
    if spec.schedule == "constant":
        return spec.learning_rate
    floor = min(spec.min_learning_rate, spec.learning_rate)
    if spec.schedule == "wsd":
        left = min(1.0, (steps - step) / spec.decay_steps) if spec.decay_steps else 1.0
        return floor + (spec.learning_rate - floor) * left
    progress = (step - spec.warmup_steps) / max(1, steps - spec.warmup_steps)
    return floor + (spec.learning_rate - floor) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
