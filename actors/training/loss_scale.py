"""Dynamic loss scaling for fp16 (Micikevicius et al. 2018, section 3.2).

Small gradients vanish in fp16, so the loss is multiplied before backward and the gradients are divided after it. The
factor is as large as it can be: halved when a gradient overflows, in which case the step changes no weight, and doubled
after many steps without overflow. It is always a power of two, so that dividing by it costs no bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from actors.training.parallel.layout import local
from orchestrator.spec.sections import Precision

INITIAL = 2.0**16
GROWTH_STEPS = 2000
"""Steps without overflow before the factor is doubled; both numbers are those of Micikevicius et al. and of torch."""
SMALLEST = 1.0
"""An overflow at this factor is not the factor's fault."""
LARGEST = 2.0**40
"""Far above what gradients need, and far below where the scaled loss itself overflows float32."""


@dataclass
class LossScale:
    """Every rank has one and tells it the same, so all have the same value."""

    value: float = 1.0
    good_steps: int = 0
    """Steps without overflow since the value changed."""
    dynamic: bool = False
    """False: stays at one, for formats with the range of float32."""
    growth_steps: int = GROWTH_STEPS

    @staticmethod
    def of(precision: Precision) -> LossScale:
        return LossScale(INITIAL, dynamic=True) if precision is Precision.FP16 else LossScale()

    def __call__(self) -> float:
        return self.value

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divides the gradients, before anything looks at their size."""
        gradients = [local(p.grad) for p in parameters if p.grad is not None]
        if self.value != 1.0 and gradients:
            torch._foreach_mul_(gradients, 1.0 / self.value)

    def overflowed(self, *, loss: float, gradient_norm: float) -> bool:
        """Whether a smaller factor would have helped: the gradients are not finite although the loss is."""
        return (
            self.dynamic
            and self.value > SMALLEST
            and math.isfinite(loss)
            and not math.isfinite(gradient_norm)
        )

    def shrink(self) -> None:
        self.value, self.good_steps = max(SMALLEST, self.value / 2), 0

    def grow(self) -> None:
        """After a good step."""
        if not self.dynamic:
            return
        self.good_steps += 1
        if self.good_steps >= self.growth_steps:
            self.value, self.good_steps = min(LARGEST, self.value * 2), 0

    def state(self) -> dict[str, Any]:
        """JSON values, for checkpoints."""
        return {"dynamic": self.dynamic, "value": self.value, "good_steps": self.good_steps}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes what `state` gave; of another precision's checkpoint nothing."""
        if self.dynamic and state["dynamic"]:
            self.value, self.good_steps = float(state["value"]), int(state["good_steps"])
