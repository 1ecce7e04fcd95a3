"""NaN and infinity in a step: who had them, in which batch, and how often the job goes on all the same.

Whether a step is finite is read off its totals, which are the same on every rank; the details below are gathered only
after such a step. So a good step pays nothing, and all ranks always take the same decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from actors.training.parallel.clip import StepTotals
from actors.training.parallel.layout import local
from actors.training.parallel.mesh import RankMesh

NAMED = 3
"""Parameters that are named; one broken activation usually breaks them all."""
RANKS_NAMED = 16


class NonFiniteError(FloatingPointError):
    """Loss or gradient is not a number: going on would ruin the weights."""


@dataclass(frozen=True)
class NonFinite:
    """A step whose loss or gradient is not finite, the same on every rank."""

    step: int
    """1-based, as steps are reported."""
    loss: float
    gradient_norm: float
    ranks: tuple[int, ...]
    """Ranks whose own share of the loss is not finite; when there is none, those with such a gradient."""
    replicas: tuple[int, ...]
    """Data replicas of `ranks`, where it was the loss; all of them when gradients alone are to blame."""
    sequences: tuple[tuple[int, int], ...]
    """First and last global index of the sequences those replicas read."""
    parameters: tuple[str, ...]
    """First few parameters whose gradient is not finite, in the model's order."""

    @property
    def sentence(self) -> str:
        ranks = ", ".join(map(str, self.ranks[:RANKS_NAMED])) + (
            ", ..." if len(self.ranks) > RANKS_NAMED else ""
        )
        spans = ", ".join(f"{first} to {last}" for first, last in self.sequences[:RANKS_NAMED])
        blamed = f"on rank {ranks}" if len(self.ranks) == 1 else f"on ranks {ranks}"
        names = f"; gradients of {', '.join(self.parameters)}" if self.parameters else ""
        return (
            f"step {self.step}: loss {self.loss}, gradient norm {self.gradient_norm}, not finite {blamed} "
            f"in sequences {spans}{names}"
        )

    def as_json(self) -> dict[str, Any]:
        """For events. The numbers themselves are no JSON values: they are in the sentence."""
        return {
            "step": self.step,
            "ranks": list(self.ranks[:RANKS_NAMED]),
            "replicas": list(self.replicas[:RANKS_NAMED]),
            "sequences": [list(span) for span in self.sequences[:RANKS_NAMED]],
            "parameters": list(self.parameters),
        }


def find_nonfinite(
    named: Sequence[tuple[str, nn.Parameter]],
    loss: Tensor,
    totals: StepTotals,
    *,
    step: int,
    first_sequence: int,
    share: int,
    mesh: RankMesh,
) -> NonFinite:
    """Who is to blame for the `totals` of `step` (0-based). Collective over the world.

    `loss` is this rank's own share, `first_sequence` the first global index of the step's sequences, of which every
    replica reads `share`.
    """
    broken = [
        name for name, p in named if p.grad is not None and not bool(torch.isfinite(local(p.grad)).all())
    ]
    mine = (bool(torch.isfinite(loss)), mesh.coordinates["dp"], len(broken), broken[:NAMED])
    told: list[Any] = [mine]
    if dist.get_world_size() > 1:
        told = [None] * dist.get_world_size()
        dist.all_gather_object(told, mine)
    by_loss = [rank for rank, (finite, *_) in enumerate(told) if not finite]
    by_gradient = [rank for rank, (_, _, count, _) in enumerate(told) if count]
    # Gradients are sums over replicas: only the loss tells them apart.
    replicas = sorted({told[rank][1] for rank in by_loss} or {replica for _, replica, *_ in told})
    return NonFinite(
        step=step + 1,
        loss=totals.loss,
        gradient_norm=totals.gradient_norm,
        ranks=tuple(by_loss or by_gradient),
        replicas=tuple(replicas),
        sequences=tuple(
            (first_sequence + replica * share, first_sequence + (replica + 1) * share - 1)
            for replica in replicas
        ),
        parameters=tuple(dict.fromkeys(name for *_, names in told for name in names))[:NAMED],
    )


class Skips:
    """The steps whose update was left out, over the life of the job. Part of its checkpoints, so that a restart leaves
    the same ones out."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._steps: set[int] = set()

    @property
    def left(self) -> int:
        return self._budget - len(self._steps)

    def __contains__(self, step: int) -> bool:
        return step in self._steps

    def add(self, step: int) -> None:
        """Leaves out `step` (0-based)."""
        self._steps.add(step)

    def state(self) -> dict[str, Any]:
        """JSON values: steps are 1-based there, as everywhere outside the engine."""
        return {"steps": sorted(step + 1 for step in self._steps)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Adds what a checkpoint knew; what was decided since stays decided."""
        self._steps |= {int(step) - 1 for step in state["steps"]}
