"""What experts did in a step, over all ranks of a stage: their load, what they dropped, and the bias that evens it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from actors.training.model.decoder import Decoder
from actors.training.model.moe import MoeFeedForward
from actors.training.parallel.mesh import RankMesh


@dataclass(frozen=True)
class ExpertLoad:
    """One layer's step."""

    layer: int
    assigned: tuple[int, ...]
    """Assignments of tokens to each expert, over the whole step."""
    dropped: tuple[int, ...]
    """Those among them that found the expert full."""


class ExpertBalance:
    """The layers with experts of this rank's stages; without any, all calls do nothing."""

    def __init__(self, parts: Sequence[nn.Module], mesh: RankMesh) -> None:
        self._layers = {
            int(index): moe
            for part in parts
            if isinstance(part, Decoder)
            for index, layer in part.layers.items()
            if isinstance(moe := layer.get_submodule("feed_forward"), MoeFeedForward)
        }
        self._group = mesh.stage.group("stage")
        self._size = mesh.stage.size("stage")

    def moved_buffers(self) -> dict[str, Tensor]:
        """Buffers that training moves, by their names in the whole model."""
        return {
            f"layers.{index}.feed_forward.bias": moe.bias
            for index, moe in self._layers.items()
            if moe.spec.balance == "bias"
        }

    @torch.no_grad()
    def finish_step(self, *, update: bool = True) -> list[ExpertLoad]:
        """Adds the counts of all ranks up, moves the biases by their sign (Wang et al. 2024, algorithm 1), and begins
        anew. Collective over the ranks of a stage. `update=False`: a step that changes nothing leaves the biases."""
        if not self._layers:
            return []
        counts = torch.stack([torch.stack((moe.load, moe.dropped)) for moe in self._layers.values()])
        if self._size > 1:
            dist.all_reduce(counts, group=self._group)
        loads = []
        for (index, moe), (assigned, dropped) in zip(self._layers.items(), counts, strict=True):
            if update and moe.spec.balance == "bias":
                moe.bias += moe.spec.balance_rate * (assigned.mean() - assigned).sign()
            moe.load.zero_()
            moe.dropped.zero_()
            loads.append(ExpertLoad(index, tuple(map(int, assigned)), tuple(map(int, dropped))))
        return loads
