"""The ranks that write one checkpoint, and how they agree. One user at a time: the group orders its
messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Peers:
    """A gloo group of its own, or no group for a single process."""

    rank: int
    world_size: int
    group: dist.ProcessGroup | None

    def __post_init__(self) -> None:
        if self.group is None and self.world_size != 1:
            raise ValueError(
                f"{self.world_size} ranks need a process group of their own for checkpoints, none was given"
            )
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is outside a world of {self.world_size}")

    @property
    def leads(self) -> bool:
        """True on the rank that decides."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank, on every rank."""
        if self.group is None:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def hear(self, value: T | None) -> T:
        """Rank 0's value on every rank."""
        box: list[Any] = [value]
        if self.group is not None:
            dist.broadcast_object_list(box, group=self.group, group_src=0)
        answer: T = box[0]
        return answer
