"""The job's mesh: rank <-> coordinates on the axes of parallelism.

Ranks are numbered with the inner axis fastest. With the default order `tp, cp, ep, pp, dp`,
rank = tp + T*(cp + C*(pp + P*dp)). Expert parallelism reuses the data ranks and has no dimension of its own: an expert
group is `ep` neighbours in a stage's list of ranks, tensor ranks first, then context, then data ranks.

The numbering is fixed, because the engine builds its groups by it. Where a rank runs is free: that is placement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate, product
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray

from orchestrator.spec.sections import ParallelismSpec

AXES: tuple[str, ...] = ("tp", "cp", "pp", "dp")
"""Axes that span ranks, inner to outer."""


Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Mesh:
    degrees: tuple[int, ...]
    """Degree of each axis in `axes`, inner to outer."""
    axes: tuple[str, ...] = AXES
    ep: int = 1
    """Ranks of an expert group."""

    @classmethod
    def of(cls, parallelism: ParallelismSpec) -> Mesh:
        return cls(tuple(getattr(parallelism, axis) for axis in AXES), ep=parallelism.ep)

    @property
    def size(self) -> int:
        return prod(self.degrees)

    def degree(self, axis: str) -> int:
        return self.degrees[self.axes.index(axis)]

    def members(self, axes: Collection[str]) -> Ranks:
        """`blocks` as an array of ranks (blocks, ranks of a block)."""
        ranks = np.arange(self.size).reshape(self.degrees[::-1])  # outermost first
        inside = [i for i, axis in enumerate(reversed(self.axes)) if axis in axes]
        outside = [i for i in range(len(self.axes)) if i not in inside]
        size = prod(ranks.shape[i] for i in inside)
        return ranks.transpose(*outside, *inside).reshape(-1, size)

    def neighbours(self, size: int, *, of: Collection[str] = ("tp", "cp", "dp")) -> Ranks:
        """Groups of `size` neighbours in the list of ranks that differ in `of` alone, as (groups, size): expert groups,
        and with `of` = (cp, dp) the groups over which ZeRO shards."""
        return self.members(of).reshape(-1, size)

    def coordinates(self, rank: int) -> dict[str, int]:
        """Coordinates of `rank` on every axis."""
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} is outside a mesh of {self.size} ranks")
        found: dict[str, int] = {}
        for axis, degree in zip(self.axes, self.degrees, strict=True):
            rank, found[axis] = divmod(rank, degree)
        return found

    def rank(self, coordinates: Mapping[str, int]) -> int:
        """The rank at `coordinates`; the inverse of `coordinates(rank)`."""
        rank, stride = 0, 1
        for axis, degree in zip(self.axes, self.degrees, strict=True):
            rank += coordinates[axis] * stride
            stride *= degree
        return rank

    def groups(self, axis: str) -> list[tuple[int, ...]]:
        """Every group of ranks that differ in `axis` alone, each in the order of that axis."""
        return self.blocks((axis,))

    def blocks(self, axes: Collection[str]) -> list[tuple[int, ...]]:
        """Every block of ranks that differ in `axes` alone, each in rank order: (tp, cp, pp) gives the pipelines."""
        strides = dict(zip(self.axes, accumulate((1, *self.degrees[:-1]), mul), strict=True))

        def offsets(chosen: list[str]) -> list[int]:
            ranges = [range(0, self.degree(a) * strides[a], strides[a]) for a in reversed(chosen)]
            return [sum(steps) for steps in product(*ranges)]

        inside = offsets([a for a in self.axes if a in axes])
        return [
            tuple(first + step for step in inside)
            for first in offsets([a for a in self.axes if a not in axes])
        ]
