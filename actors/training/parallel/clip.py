"""The one small collective of a step: gradient norm, loss and the wish to stop, added over the world together.

torch's own clipping sees one pipeline stage alone and takes every local tensor for a whole one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from actors.training.parallel.layout import Layouts, local
from actors.training.parallel.mesh import RankMesh


@dataclass(frozen=True)
class StepTotals:
    """What every rank knows after the step's collective."""

    loss: float
    """Mean loss per token, nats."""
    gradient_norm: float
    """L2 norm of the whole model's gradient, before clipping."""
    stop: bool
    """Some rank was asked to stop."""
    measures: tuple[float, ...] = ()
    """Sums over all ranks of what each gave as `measures`."""


def add_up_step(
    parameters: Sequence[tuple[str, nn.Parameter]],
    layouts: Layouts,
    loss: Tensor,
    *,
    stop: bool,
    mesh: RankMesh,
    measures: Sequence[float] = (),
) -> StepTotals:
    """Adds this rank's share of loss and squared norm over the world: one all-reduce of three float64 numbers, and of
    the `measures` that ride along.

    `loss` must be zero on ranks that do not count it. Gradients must be complete: summed over dp, none partial.
    Float64 whatever the parameters' format: squares of many float32 gradients neither overflow nor lose bits here.
    """
    square = _owned_square(parameters, layouts, mesh).to(loss.device)
    told = torch.tensor((float(stop), *measures), dtype=torch.float64, device=loss.device)
    totals = torch.cat((torch.stack((square, loss.double())), told))
    if dist.get_world_size() > 1:
        dist.all_reduce(totals)
    squared, mean, wishes, *measured = totals.tolist()
    return StepTotals(loss=mean, gradient_norm=squared**0.5, stop=wishes > 0, measures=tuple(measured))


@torch.no_grad()
def scale_gradients(parameters: Sequence[nn.Parameter], *, norm: float, max_norm: float | None) -> None:
    """Scales gradients down to `max_norm` (Pascanu et al. 2013), with torch's guard of 1e-6."""
    if max_norm is None:
        return
    coefficient = max_norm / (norm + 1e-6)
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    if coefficient < 1.0 and gradients:  # none where all of a stage is frozen
        torch._foreach_mul_(gradients, coefficient)


@torch.no_grad()
def _owned_square(parameters: Sequence[tuple[str, nn.Parameter]], layouts: Layouts, mesh: RankMesh) -> Tensor:
    """Sum of squares of the gradients that this rank counts.

    A gradient that several ranks hold is counted by the one at coordinate 0 of every axis it is replicated over. Stages
    hold different parameters, so pp never excludes; neither does an axis along which the parameter is cut.
    """
    owned = []
    for name, parameter in parameters:
        layout = layouts[name]
        distinct = {"pp", *(cut.axis for cut in layout.cuts)}
        coordinates = mesh.view(layout.expert).coordinates
        counted = all(i == 0 for axis, i in coordinates.items() if axis not in distinct)
        if parameter.grad is not None and counted:
            owned.append(local(parameter.grad))
    if not owned:
        return torch.zeros((), dtype=torch.float64)
    # A norm in bf16 would have three digits.
    dtype = torch.promote_types(owned[0].dtype, torch.float32)
    return torch.stack(torch._foreach_norm(owned, 2, dtype=dtype)).double().square().sum()
