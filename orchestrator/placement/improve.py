"""From a placement by an order of axes to a cheaper one that follows none, where the job is small enough to search.

Small jobs are searched exactly (`exact`); somewhat larger ones by descent: two units trade places, or one moves to a
free place, whenever that makes the step cheaper, or as cheap with less traffic in all. The moves tried come from a
fixed seed, so that the same question gets the same answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np

from orchestrator.placement.exact import cheapest, units_of
from orchestrator.placement.found import CLOSER, Found, Judge
from orchestrator.placement.mapping import Mapped
from orchestrator.placement.seating import Seating

TRIES = 600
"""Moves tried for one start: some tenths of a second."""


def improved(judge: Judge, found: Mapped) -> Mapped:
    """`found`, or what a search made better. A job that names an order keeps it."""
    if judge.pricing is None or judge.rules.order is not None:
        return found
    searched = cheapest(judge, found.best)
    best = searched.best
    for start in (best, found.next_best) if searched.promising else ():
        if start is not None:
            descended = _Descent(judge, start, units_of(judge)).run()
            best = descended if descended.better_than(best) else best
    return replace(found, best=best)


class _Descent:
    def __init__(self, judge: Judge, start: Found, units: Sequence[Sequence[int]]) -> None:
        assert judge.pricing is not None
        self._judge, self._pricing, self._best = judge, judge.pricing, start
        self._units = [np.array(ranks) for ranks in units]
        self._sent_s = self._pricing.sent_s(start.seating)
        self._random = Random(0)

    def run(self) -> Found:
        for _ in range(TRIES):
            moved = self._moved()
            if moved is not None and self._better(found := self._judge.seated(moved)):
                self._best = found
        return self._best

    def _better(self, found: Found) -> bool:
        if self._best.perfect and found.seconds > self._best.seconds * (1 + CLOSER):
            return False
        if not found.allowed or found.score > self._best.score:
            return False
        if found.score < self._best.score or found.seconds < self._best.seconds * (1 - CLOSER):
            self._sent_s = self._pricing.sent_s(found.seating)
            return True
        if found.seconds > self._best.seconds * (1 + CLOSER):
            return False
        if (sent_s := self._pricing.sent_s(found.seating)) < self._sent_s * (1 - CLOSER):
            self._sent_s = sent_s
            return True
        return False

    def _moved(self) -> Seating | None:
        """Two units that traded places, or one on free places of another pocket; None when nothing changed."""
        seating = self._best.seating
        a = self._units[self._random.randrange(len(self._units))]
        free = self._free(len(a))
        choice = self._random.randrange(len(self._units) + len(free))
        pocket, index = seating.pocket.copy(), seating.index.copy()
        if choice < len(self._units):
            b = self._units[choice]
            if (pocket[a] == pocket[b]).all():
                return None
            pocket[a], pocket[b] = seating.pocket[b], seating.pocket[a]
            index[a], index[b] = seating.index[b], seating.index[a]
        else:
            number, indexes = free[choice - len(self._units)]
            pocket[a], index[a] = number, indexes
        return Seating(seating.table, pocket, index)

    def _free(self, size: int) -> list[tuple[int, list[int]]]:
        """Pockets with room for a unit, and the indexes it would get."""
        seating = self._best.seating
        taken = Counter(seating.pocket.tolist())
        used = set(zip(seating.pocket.tolist(), seating.index.tolist(), strict=True))
        return [
            (number, [i for i in pocket.free if (number, i) not in used][:size])
            for number, pocket in enumerate(seating.table.pockets)
            if len(pocket.free) - taken[number] >= size
        ]
