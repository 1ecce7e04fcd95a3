"""The order of axes: which parts of the mesh lie nearest. Chosen by cost, or as the job says.

A job's slots are first packed as its rules need them. Then its ranks are poured over these slots in other orders,
which costs no packing, and small jobs are packed anew for each order. What keeps the rules as well and costs less is
taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.placement.found import CLOSER, Found, Judge
from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.placement.nesting import asked_order, levels_for, orders, parts, ranks_in
from orchestrator.placement.outcome import ruled_axes
from orchestrator.placement.packing import Packer
from orchestrator.placement.seating import Seating

POURED_RANKS = 1 << 20
"""Ranks poured in all orders together: bounds the time of the largest jobs; one of 8,000 tries every order of five."""

PACKED_RANKS = 1 << 13
"""Ranks packed anew in all orders together."""


@dataclass(frozen=True, slots=True)
class Mapped:
    best: Found
    next_best: Found | None = None
    """The cheapest placement by another order, for comparison."""
    order_kept: bool = True
    """False when the order that the job asks for breaks its rules."""


def mapped(judge: Judge, base: Found, shards: int) -> Mapped:
    """The cheapest of the orders; `base` when none keeps the rules as well for less."""
    fine = parts(judge.mesh, shards)
    if judge.rules.order is not None:
        order = asked_order(fine, judge.rules.order)
        asked = [found for found in _laid_out(judge, base, fine, order, pack=True) if found.allowed]
        return Mapped(_best(asked)) if asked else Mapped(base, order_kept=False)
    if judge.pricing is None:
        return Mapped(base)
    heaviest = _heaviest_first(judge, fine)
    chosen = orders(fine, nearest_first=heaviest, limit=max(4, POURED_RANKS // judge.mesh.size))
    best, others = base, [base]
    for number, order in enumerate(chosen):
        pack = (number + 1) * judge.mesh.size <= PACKED_RANKS
        for found in _laid_out(judge, base, fine, order, pack=pack):
            if found.allowed and found.score <= base.score:
                others.append(found)
                best = found if found.better_than(best) else best
    return Mapped(best, _runner_up(best, others))


def _best(candidates: list[Found]) -> Found:
    best = candidates[0]
    for found in candidates[1:]:
        best = found if found.better_than(best) else best
    return best


def _runner_up(best: Found, others: list[Found]) -> Found | None:
    """The cheapest that costs more than the best: another order at the same price is no alternative."""
    dearer = [f for f in others if f.score == best.score and f.seconds > best.seconds * (1 + CLOSER)]
    return min(dearer, key=lambda f: f.seconds, default=None)


def _laid_out(
    judge: Judge, base: Found, fine: Mesh, order: tuple[str, ...], *, pack: bool
) -> Iterator[Found]:
    ranks = ranks_in(fine, order)
    for slots in _sequences(base.seating, fine, base.order):
        by_rank = np.empty_like(ranks)
        by_rank[ranks] = slots
        yield judge.seated(base.seating.reseated(by_rank), order)
    if pack:
        rules = ruled_axes(judge.mesh, judge.rules)
        packed = Packer(judge.table, levels_for(fine, order, rules)).pack()
        if packed is not None:
            yield judge.packed(ranks, packed, order)


def _sequences(seating: Seating, fine: Mesh, packed: tuple[str, ...]) -> Iterator[Ranks]:
    """Ranks of `seating` in the order of their slots: as they were packed, and as domains follow each other."""
    yield ranks_in(fine, packed)
    keys = [seating.index, *(seating.domains[tier] for tier in reversed(seating.table.locality))]
    yield np.lexsort(keys)


def _heaviest_first(judge: Judge, fine: Mesh) -> list[str]:
    """Parts of the mesh by what a rank sends in them: the first guess of what should be nearest."""
    assert judge.pricing is not None
    sent = {demand.axis: demand.bytes for demand in judge.pricing.demands}
    usual = {axis: i for i, axis in enumerate(("tp", "cp", "ep", "shard", "pp", "dp"))}
    return sorted(fine.axes, key=lambda axis: (-sent.get(axis, 0.0), usual[axis]))
