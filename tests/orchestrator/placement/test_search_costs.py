"""What searches reckon with against the cost itself: the tally equals it after any moves, the bound is never above."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from orchestrator.placement.bound import Bound
from orchestrator.placement.cost import Pricing
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.seating import Seating
from orchestrator.placement.tally import Tally
from orchestrator.placement.tariff import tariff_of
from tests.orchestrator.placement.test_cheapest import PLANS, fabric_of, job_of


@pytest.mark.parametrize("seed", range(60))
def test_tally_and_bound_against_the_cost(seed: int) -> None:
    """Ranks sit anywhere, several on one slot: the cost does not mind, and every pattern of domains comes up."""
    random = Random(seed)
    fabric, free, _ = fabric_of(random)
    plan = random.choice(PLANS)
    workload, _ = job_of(random, plan)
    table = PocketTable(fabric, free, lambda node: True)
    pricing = Pricing(
        Mesh.of(plan), workload, tariff_of(fabric.links, tuple(reversed(table.locality))), hidden_s=0.0
    )
    pockets = range(len(table.pockets))
    seats = [random.choice(pockets) for _ in range(plan.world_size)]
    ranks = list(range(plan.world_size))

    def cost() -> float:
        where = np.array(seats)
        return pricing.cost(Seating(table, where, np.zeros_like(where))).seconds

    tally = Tally(pricing, table, ranks, seats)
    for _ in range(20):
        moves = {random.choice(ranks): random.choice(pockets) for _ in range(random.randint(1, 3))}
        for rank, pocket in moves.items():
            seats[rank] = pocket
        tally.move(moves)
        assert tally.seconds == pytest.approx(cost(), rel=1e-9)

    bound, seated = Bound(pricing, ranks, table.levels), [-1] * len(seats)
    for rank in ranks:
        bound.seat(rank, seats[rank], seated)
        seated[rank] = seats[rank]
        assert bound.seconds <= cost() * (1 + 1e-9)


def test_unseating_takes_back_what_seating_added() -> None:
    random = Random(3)
    fabric, free, _ = fabric_of(random)
    plan = next(plan for plan in PLANS if (plan.pp, plan.dp) == (2, 4))
    workload, _ = job_of(random, plan)
    table = PocketTable(fabric, free, lambda node: True)
    tariff = tariff_of(fabric.links, tuple(reversed(table.locality)))
    bound = Bound(Pricing(Mesh.of(plan), workload, tariff, 0.0), list(range(8)), table.levels)
    seats, undos, seen = [-1] * 8, [], [bound.seconds]
    for rank in range(8):
        undos.append(bound.seat(rank, rank % len(table.pockets), seats))
        seats[rank] = rank % len(table.pockets)
        seen.append(bound.seconds)
    for rank in reversed(range(8)):
        assert bound.seconds == seen.pop()
        seats[rank] = -1
        bound.unseat(undos.pop())
    assert bound.seconds == seen.pop() == 0.0
