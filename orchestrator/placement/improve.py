"""From a placement by an order of axes to a cheaper one that follows none, where the job is small enough to search.

Small jobs are searched exactly (`exact`); somewhat larger ones by simulated annealing (Kirkpatrick et al. 1983) from
the cheapest of many seatings by `bisection`: two units or groups trade places, one moves to a free place, or a ring is
laid out evenly over some domains; what makes the step dearer is taken ever more rarely. What is drawn comes from fixed
seeds, so that the same question gets the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from random import Random

import numpy as np

from orchestrator.placement.bisection import Bisection
from orchestrator.placement.exact import cheapest, units_of
from orchestrator.placement.found import Found, Judge
from orchestrator.placement.mapping import Mapped
from orchestrator.placement.outcome import ruled_axes, together
from orchestrator.placement.pockets import UNKNOWN
from orchestrator.placement.seating import Seating
from orchestrator.placement.tally import Tally
from orchestrator.spec.sections import Tier

MOVES = 6_000
"""Moves tried in each run: a third of a second."""

HOT, COLD = 0.05, 0.0002
"""Temperature at the beginning and at the end, as shares of the cost: a move that makes the step dearer by so much is
taken once in e times."""

GATHERED, SWAPPED = 0.2, 0.2
"""Shares of moves that lay out a whole ring, and that let two whole groups of an axis trade places: unit by unit it is
dear to get from one good form to another."""

POWERS = (8, 16, 8, 16)
"""By run the power of the norm that stands for the busiest uplink, which alone would show no way. Each run begins at
other seats."""

DRAWS = 1000
"""Seatings by bisection that are priced, to begin at the cheapest."""


def improved(judge: Judge, found: Mapped) -> Mapped:
    """`found`, or what a search made better. A job that names an order keeps it."""
    if judge.pricing is None or judge.rules.order is not None:
        return found
    searched = cheapest(judge, found.best)
    best = searched.best
    if searched.promising:
        annealing = _Annealing(judge, best)
        starts = annealing.starts(len(POWERS))
        for number, power in enumerate(POWERS):
            annealed = annealing.run(starts[number % len(starts)], power, Random(number))
            best = annealed if annealed.allowed and annealed.better_than(best) else best
    return replace(found, best=best)


class _Annealing:
    def __init__(self, judge: Judge, found: Found) -> None:
        assert judge.pricing is not None
        self._judge, self._units = judge, units_of(judge)
        self._size = len(self._units[0])
        self._unit_of = np.empty(judge.mesh.size, dtype=np.int64)
        for number, ranks in enumerate(self._units):
            self._unit_of[ranks] = number
        self._given = [int(found.seating.pocket[ranks[0]]) for ranks in self._units]
        unit_of = self._unit_of.tolist()
        self._tally = Tally(judge.pricing, judge.table, unit_of, self._given)
        self._left = [len(pocket.free) for pocket in judge.table.pockets]
        for seat in self._given:
            self._left[seat] -= self._size
        self._bonds = _bonds(judge, found, unit_of, len(self._units))
        self._rings, self._lines = self._tally.rings, self._tally.lines
        self._widths = [level for level in judge.table.levels if 1 < len(set(level)) < len(level)]
        self._random, self._power = Random(0), POWERS[0]

    def starts(self, count: int) -> list[list[int]]:
        """At most `count` seatings of different costs that keep the rules: the cheapest by bisection, the given one."""
        table, mesh = self._judge.table, self._judge.mesh
        units = self._unit_of.reshape(mesh.degrees[::-1])
        if (units == units[..., :1]).all():  # a unit is a tensor group
            units = units[..., :1]
        rooms = [len(pocket.free) // self._size for pocket in table.pockets]
        bisection, random = Bisection(units, rooms, table.levels), Random(0)
        drawn: dict[float, list[int]] = {}
        for _ in range(DRAWS):
            moves = dict(enumerate(bisection.seats(random)))
            if all(self._kept(unit, moves) for unit in moves):
                self._move(moves)
                drawn.setdefault(round(self._tally.seconds, 12), list(moves.values()))
        return [drawn[seconds] for seconds in sorted(drawn)[: count - 1]] + [self._given]

    def run(self, start: Sequence[int], power: int, random: Random) -> Found:
        """The cheapest seating on the way from `start`."""
        self._power, self._random = power, random
        self._move(dict(enumerate(start)))
        now, best = self._energy(), (self._tally.seconds, list(self._tally.seats))
        for turn in range(MOVES):
            moves = self._proposed()
            moves = {unit: pocket for unit, pocket in moves.items() if self._tally.seats[unit] != pocket}
            if not moves or not all(self._kept(unit, moves) for unit in moves):
                continue
            before = {unit: self._tally.seats[unit] for unit in moves}
            self._move(moves)
            energy = self._energy()
            temperature = best[0] * HOT * (COLD / HOT) ** (turn / MOVES)
            if energy > now and self._random.random() >= exp((now - energy) / temperature):
                self._move(before)
                continue
            now = energy
            if (seconds := self._tally.seconds) < best[0]:
                best = (seconds, list(self._tally.seats))
        return self._found(best[1])

    def _energy(self) -> float:
        return self._tally.smoothed(self._power)

    def _proposed(self) -> dict[int, int]:
        """Units and the pockets that they would move to."""
        kind = self._random.random()
        if kind < GATHERED and self._rings and self._widths:
            return self._gathered()
        if kind < GATHERED + SWAPPED and self._lines:
            return self._swapped()
        return self._traded()

    def _swapped(self) -> dict[int, int]:
        """Two groups of an axis and each other's pockets."""
        groups, seats = self._random.choice(self._lines), self._tally.seats
        one, other = self._random.choice(groups), self._random.choice(groups)
        if set(one) & set(other):
            return {}
        return {a: seats[b] for a, b in zip(one + other, other + one, strict=True)}

    def _traded(self) -> dict[int, int]:
        """Two units and each other's pocket, or one and a pocket with room."""
        seats = self._tally.seats
        a = self._random.randrange(len(seats))
        choice = self._random.randrange(len(seats) + len(self._left))
        if choice < len(seats):
            return {a: seats[choice], choice: seats[a]}
        pocket = choice - len(seats)
        return {a: pocket} if self._left[pocket] >= self._size else {}

    def _gathered(self) -> dict[int, int]:
        """A ring laid out evenly over some domains of a level, and where those go who sat there; empty if it cannot."""
        ring, level = self._random.choice(self._rings), self._random.choice(self._widths)
        domains = sorted({level[pocket] for pocket in self._tally.seats} | self._open(level))
        counts = [m for m in range(1, len(domains) + 1) if len(ring) % m == 0]
        chosen = set(self._random.sample(domains, self._random.choice(counts)))
        quota = len(ring) // len(chosen)
        here: dict[int, list[int]] = {domain: [] for domain in chosen}
        movers = []
        for unit in ring:
            domain = level[self._tally.seats[unit]]
            if domain in chosen and len(here[domain]) < quota:
                here[domain].append(unit)
            else:
                movers.append(unit)
        moves: dict[int, int] = {}
        for domain in sorted(chosen):
            free = [
                p
                for p, left in enumerate(self._left)
                if level[p] == domain
                for _ in range(left // self._size)
            ]
            others = [u for u, p in enumerate(self._tally.seats) if level[p] == domain and u not in ring]
            self._random.shuffle(others)
            for _ in range(quota - len(here[domain])):
                mover = movers.pop()
                if free:
                    moves[mover] = free.pop()
                elif others:
                    other = others.pop()
                    moves[mover], moves[other] = self._tally.seats[other], self._tally.seats[mover]
                else:
                    return {}
        return moves

    def _open(self, level: Sequence[int]) -> set[int]:
        """Domains with room for a unit."""
        return {level[pocket] for pocket, left in enumerate(self._left) if left >= self._size}

    def _kept(self, unit: int, moves: dict[int, int]) -> bool:
        numbers = self._judge.table.numbers
        for tier, others in self._bonds[unit]:
            domain = numbers[tier][moves[unit]]
            if domain == UNKNOWN:
                return False
            if any(numbers[tier][moves.get(o, self._tally.seats[o])] != domain for o in others):
                return False
        return True

    def _move(self, moves: dict[int, int]) -> None:
        for unit, pocket in moves.items():
            self._left[self._tally.seats[unit]] += self._size
            self._left[pocket] -= self._size
        self._tally.move(moves)

    def _found(self, seats: Sequence[int]) -> Found:
        pocket = np.empty(self._judge.mesh.size, dtype=np.int64)
        index = np.empty_like(pocket)
        free = [iter(pocket.free) for pocket in self._judge.table.pockets]
        for seat, ranks in zip(seats, self._units, strict=True):
            pocket[ranks] = seat
            index[ranks] = [next(free[seat]) for _ in ranks]
        return self._judge.seated(Seating(self._judge.table, pocket, index))


def _bonds(
    judge: Judge, start: Found, unit_of: Sequence[int], units: int
) -> list[list[tuple[Tier, tuple[int, ...]]]]:
    """By unit: tiers of rules that `start` keeps, and the units that must share a domain of them."""
    kept = {outcome.axis for outcome in start.outcomes if outcome.outside == 0}
    found: list[list[tuple[Tier, tuple[int, ...]]]] = [[] for _ in range(units)]
    for axis, rule in ruled_axes(judge.mesh, judge.rules).items():
        if axis not in kept or rule.tier is Tier.ANY:
            continue
        for ranks in together(judge.mesh, axis).tolist():
            members = {unit_of[rank] for rank in ranks}
            for unit in members:
                found[unit].append((rule.tier, tuple(sorted(members - {unit}))))
    return found
