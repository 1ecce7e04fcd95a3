"""A placement that was found, and what it is judged by: preferences missed, then what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from orchestrator.placement.cost import Pricing
from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.placement.outcome import TIERS, axis_outcomes
from orchestrator.placement.packing import Place
from orchestrator.placement.placement import AxisOutcome
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.priced import Cost
from orchestrator.placement.seating import Seating
from orchestrator.spec.sections import PlacementSpec

CLOSER = 1e-9
"""Relative difference of two costs below which they are equal: rounding must not decide."""


@dataclass(frozen=True, eq=False)
class Found:
    judge: Judge
    seating: Seating
    order: tuple[str, ...] = ()
    """Parts of the mesh, nearest first, in which it was laid out; empty when it follows no order."""

    @cached_property
    def outcomes(self) -> tuple[AxisOutcome, ...]:
        return axis_outcomes(self.judge.mesh, self.judge.rules, self.seating.domains)

    @cached_property
    def score(self) -> tuple[int, ...]:
        """Groups outside and how wide they are, tp before cp before ep before pp before dp. Lower is better."""
        return tuple(
            value for o in self.outcomes for value in (o.outside, TIERS.index(o.widest) if o.outside else 0)
        )

    @property
    def allowed(self) -> bool:
        """No required rule is broken."""
        return not any(o.outside for o in self.outcomes if o.mode == "required")

    @property
    def perfect(self) -> bool:
        """No group outside its tier."""
        return not any(outcome.outside for outcome in self.outcomes)

    @cached_property
    def cost(self) -> Cost | None:
        pricing = self.judge.pricing
        return None if pricing is None else pricing.cost(self.seating)

    @property
    def seconds(self) -> float:
        return 0.0 if self.cost is None else self.cost.seconds

    def better_than(self, other: Found | None) -> bool:
        if other is None or self.score != other.score:
            return other is None or self.score < other.score
        return self.seconds < other.seconds * (1 - CLOSER)


@dataclass(frozen=True, slots=True)
class Judge:
    """What every candidate of one solve is judged by."""

    mesh: Mesh
    rules: PlacementSpec
    table: PocketTable
    pricing: Pricing | None = None

    def packed(self, ranks: Ranks, places: Sequence[Place], order: tuple[str, ...] = ()) -> Found:
        """`places[i]` for rank `ranks[i]`."""
        array = np.array(places, dtype=np.int64).reshape(-1, 2)
        by_rank = np.empty_like(array)
        by_rank[ranks] = array
        return self.seated(Seating(self.table, by_rank[:, 0], by_rank[:, 1]), order)

    def seated(self, seating: Seating, order: tuple[str, ...] = ()) -> Found:
        return Found(self, seating, order)
