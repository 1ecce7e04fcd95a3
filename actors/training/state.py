"""What a checkpoint holds of one rank: weights and optimizer state under the names of the whole model.

Keys are those of torch's flattened optimizer state (`state.<parameter>.<quantity>`), and sharded values say what
they are shards of, so a stage or shard of any plan finds its part in any other plan's checkpoint. Learning rate,
betas and the like are not state: they follow from the job file and the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.stateful import Stateful

from actors.training.optimizer import RankOptimizer
from actors.training.parallel.layout import Layouts, local
from actors.training.parallel.mesh import RankMesh

Named = Sequence[tuple[str, nn.Parameter]]


class WeightsState(Stateful):
    """Parameters, and the buffers that training moves."""

    def __init__(self, named: Named, layouts: Layouts, mesh: RankMesh, buffers: Mapping[str, Tensor]) -> None:
        self._named = named
        self._layouts = layouts
        self._mesh = mesh
        self._buffers = buffers

    def state_dict(self) -> dict[str, Any]:
        weights = {}
        for name, parameter in self._named:
            layout = self._layouts[name]
            weights[name] = layout.distributed(local(parameter), self._mesh.view(layout.expert))
        return weights | dict(self._buffers)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, parameter in self._named:
            local(parameter).copy_(local(state_dict[name]))
        for name, buffer in self._buffers.items():
            buffer.copy_(state_dict[name])


class OptimizerState(Stateful):
    """Moments and step counts. Before the first step they are the zeros it would start from."""

    def __init__(self, named: Named, optimizer: RankOptimizer, layouts: Layouts, mesh: RankMesh) -> None:
        self._named = named
        self._optimizer = optimizer
        self._layouts = layouts
        self._mesh = mesh

    def state_dict(self) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for name, parameter in self._named:
            layout = self._layouts[name]
            for quantity, value in self._optimizer.state(parameter).items():
                if value.dim() == 0:  # the step count
                    flat[f"state.{name}.{quantity}"] = value
                else:
                    whole = layout.distributed(local(value), self._mesh.view(layout.expert))
                    flat[f"state.{name}.{quantity}"] = whole
        return flat

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, parameter in self._named:
            for quantity, value in self._optimizer.state(parameter).items():
                local(value).copy_(local(state_dict[f"state.{name}.{quantity}"]))


def training_state(
    named: Named,
    optimizer: RankOptimizer,
    layouts: Layouts,
    mesh: RankMesh,
    *,
    buffers: Mapping[str, Tensor],
) -> dict[str, Stateful]:
    """The state of a rank, by its name in checkpoints."""
    return {
        "model": WeightsState(named, layouts, mesh, buffers),
        "optimizer": OptimizerState([(n, p) for n, p in named if p.requires_grad], optimizer, layouts, mesh),
    }
