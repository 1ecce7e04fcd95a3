"""Ranks on slots, as arrays: what rules and costs are computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.placement.mesh import Ranks
from orchestrator.placement.pockets import UNKNOWN, PocketTable
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Slot

Numbers = NDArray[np.int64]
"""Domain number by rank; UNKNOWN where the label is."""


@dataclass(frozen=True, eq=False)
class Seating:
    table: PocketTable
    pocket: Ranks
    """Pocket of each rank, by rank."""
    index: Ranks
    """Accelerator index of each rank on its node."""

    @cached_property
    def domains(self) -> Mapping[Tier, Numbers]:
        """Domain number of each rank by tier, island to core."""
        return {tier: numbers[self.pocket] for tier, numbers in self.table.arrays.items()}

    @cached_property
    def levels(self) -> tuple[Tier, ...]:
        """Tiers nearest first, `any` last: those of `Tariff`."""
        return (*reversed(self.table.locality), Tier.ANY)

    @cached_property
    def distinct(self) -> Numbers:
        """Domain of each rank by level, (levels, ranks): `PocketTable.levels`; a rank of unknown island is alone."""
        found = np.zeros((len(self.levels), len(self.pocket)), dtype=np.int64)
        found[:-1] = self.table.level_array[:, self.pocket]
        alone = found[0] < 0
        if alone.any():
            found[0, alone] = -1 - np.flatnonzero(alone)
        return found

    def reseated(self, order: Ranks) -> Seating:
        """Rank r on what was the slot of rank `order[r]`."""
        return Seating(self.table, self.pocket[order], self.index[order])

    def slots(self) -> tuple[Slot, ...]:
        pockets = self.table.pockets
        places = zip(self.pocket.tolist(), self.index.tolist(), strict=True)
        return tuple(Slot(pockets[pocket].node, index) for pocket, index in places)


def numbered(
    size: int, tiers: Sequence[Tier], domain_of: Callable[[int, Tier], str | None]
) -> Mapping[Tier, Numbers]:
    """Domain numbers of ranks by tier, from their names: for labels that did not come from a table."""
    found = {}
    for tier in tiers:
        known: dict[str, int] = {}
        names = [domain_of(rank, tier) for rank in range(size)]
        found[tier] = np.array(
            [UNKNOWN if name is None else known.setdefault(name, len(known)) for name in names],
            dtype=np.int64,
        )
    return found
