"""The cheapest placement of a small job, by branch and bound, starting from one that was found otherwise.

Ranks are seated one unit after the other (a tensor group that a rule keeps in an island is one unit) on pockets; those
that look alike are tried once. The search ends with proof, or when its budget is spent: then the best so far counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from orchestrator.placement.bound import Bound
from orchestrator.placement.found import CLOSER, Found, Judge
from orchestrator.placement.outcome import ruled_axes, together
from orchestrator.placement.pockets import UNKNOWN, PocketTable
from orchestrator.placement.seating import Seating
from orchestrator.spec.sections import Tier

MOST_UNITS = 16
"""Units of a job that is searched exactly."""

MOST_ANNEALED = 64
"""Units of a job that is annealed (`improve`)."""

WORTHWHILE = 0.03
"""Share of the cost that annealing has to be able to save."""

MOST_POCKETS = 64
BUDGET = 6_000
"""Units seated before giving up: some tenths of a second. A whole seating that is priced counts as ten."""

EXHAUSTIBLE = 3_000
"""Seatings of a job so small that all of them may be priced, should no bound help."""

_PRICING = 10


@dataclass(frozen=True, slots=True)
class Searched:
    best: Found
    proven: bool
    """Nothing cheaper keeps the rules as well."""
    promising: bool
    """Not proven, and the bound leaves room for something cheaper by `WORTHWHILE`."""


def cheapest(judge: Judge, found: Found) -> Searched:
    """The best of all placements with the preferences as well kept as `found` has them; `found` itself when the job is
    too large or the budget is spent without a better one."""
    assert judge.pricing is not None
    units = units_of(judge)
    serving = sum(len(pocket.free) >= len(units[0]) for pocket in judge.table.pockets)
    if len(units) > MOST_ANNEALED or serving > MOST_POCKETS:
        return Searched(found, proven=False, promising=False)
    search = _Search(judge, found, units)
    least = search.bound.at_best(search.room())
    if found.perfect and least >= found.seconds * (1 - CLOSER):
        return Searched(found, proven=True, promising=False)
    promising = not found.perfect or least < found.seconds * (1 - WORTHWHILE)
    if len(units) > MOST_UNITS:
        return Searched(found, proven=False, promising=promising)
    proven = search.run()
    return Searched(search.best, proven, promising and not proven)


def units_of(judge: Judge) -> list[list[int]]:
    """Ranks that move together: a tensor group where a rule keeps it in an island inside a node, else single ones."""
    rule = ruled_axes(judge.mesh, judge.rules).get("tp")
    inside = judge.table.locality[-1] is Tier.ISLAND
    if rule is not None and rule.mode == "required" and rule.tier is Tier.ISLAND and inside:
        return sorted(judge.mesh.members(("tp",)).tolist())
    return [[rank] for rank in range(judge.mesh.size)]


def seatings(units: int, rooms: Sequence[int]) -> int:
    """Ways to seat numbered units on pockets with room for so many each."""
    ways = [1] + [0] * units
    for room in rooms:
        ways = [sum(comb(n, k) * ways[n - k] for k in range(min(room, n) + 1)) for n in range(units + 1)]
    return ways[units]


class _Search:
    def __init__(self, judge: Judge, found: Found, units: list[list[int]]) -> None:
        self._judge, self._units, self.best = judge, units, found
        self._size = len(units[0])
        self._left = [len(pocket.free) for pocket in judge.table.pockets]
        self._levels = judge.table.levels
        self._looks = _looks(judge.table, self._levels)
        self._seated = [Counter[int]() for _ in self._levels]
        unit_of = [0] * judge.mesh.size
        for number, ranks in enumerate(units):
            for rank in ranks:
                unit_of[rank] = number
        assert judge.pricing is not None
        self.bound = Bound(judge.pricing, unit_of, self._levels)
        self._bonds = _bonds(judge, unit_of, len(units))
        self._seats = [-1] * len(units)
        self._spent = 0
        rooms = [left // self._size for left in self._left]
        self._budget = float("inf") if seatings(len(units), rooms) <= EXHAUSTIBLE else BUDGET

    def room(self) -> list[int]:
        """Most free accelerators in one domain, by level."""
        most = []
        for level in self._levels:
            free: Counter[int] = Counter()
            for domain, left in zip(level, self._left, strict=True):
                free[domain] += left if domain >= 0 else 0
            most.append(max(free.values(), default=0))
        return most

    def run(self) -> bool:
        """Whether the search was complete."""
        return self._seat(0)

    def _seat(self, unit: int) -> bool:
        if unit == len(self._units):
            self._price()
            return True
        for pocket in list(self._candidates(unit)):
            self._spent += 1
            if self._spent > self._budget:
                return False
            undo = self.bound.seat(unit, pocket, self._seats)
            if not self._hopeless():
                self._move(unit, pocket, 1)
                done = self._seat(unit + 1)
                self._move(unit, pocket, -1)
                if not done:
                    return False
            self.bound.unseat(undo)
        return True

    def _hopeless(self) -> bool:
        return self.best.perfect and self.bound.seconds >= self.best.seconds * (1 - CLOSER)

    def _move(self, unit: int, pocket: int, by: int) -> None:
        self._seats[unit] = pocket if by > 0 else -1
        self._left[pocket] -= by * self._size
        for counts, level in zip(self._seated, self._levels, strict=True):
            counts[level[pocket]] += by

    def _candidates(self, unit: int) -> Iterator[int]:
        """Pockets with room that keep the required rules with what is seated, of alike ones the first."""
        seen = set()
        numbers = self._judge.table.numbers
        for pocket, left in enumerate(self._left):
            if left < self._size:
                continue
            if any(
                numbers[tier][pocket] == UNKNOWN
                or any(numbers[tier][self._seats[other]] != numbers[tier][pocket] for other in others)
                for tier, others in self._bonds[unit]
            ):
                continue
            if (look := self._look(pocket)) not in seen:
                seen.add(look)
                yield pocket

    def _look(self, pocket: int) -> tuple[object, ...]:
        """Equal for two pockets whose places in the search so far can be swapped: domains in use by number, others by
        what they hold."""
        if self._looks is None:
            return (pocket,)
        domains = [level[pocket] for level in self._levels]
        return (
            self._left[pocket],
            *(
                domain if self._seated[i][domain] else self._looks[i][domain]
                for i, domain in enumerate(domains)
            ),
        )

    def _price(self) -> None:
        self._spent += _PRICING
        pocket = np.empty(self._judge.mesh.size, dtype=np.int64)
        index = np.empty_like(pocket)
        taken: Counter[int] = Counter()
        for seat, ranks in zip(self._seats, self._units, strict=True):
            free = self._judge.table.pockets[seat].free[taken[seat] :]
            taken[seat] += len(ranks)
            pocket[ranks], index[ranks] = seat, free[: len(ranks)]
        found = self._judge.seated(Seating(self._judge.table, pocket, index))
        if found.allowed and found.better_than(self.best):
            self.best = found


def _looks(table: PocketTable, levels: Sequence[Sequence[int]]) -> list[dict[int, object]] | None:
    """By level and domain what it holds, in a form that is equal for alike ones. None where domains cross."""
    inner: list[object] = [len(pocket.free) for pocket in table.pockets]
    keys = list(range(len(inner)))
    found: list[dict[int, object]] = []
    for level in levels:
        held: defaultdict[int, dict[int, object]] = defaultdict(dict)
        holder: dict[int, int] = {}
        for pocket, domain in enumerate(level):
            if holder.setdefault(keys[pocket], domain) != domain:
                return None
            held[domain][keys[pocket]] = inner[pocket]
        looks: dict[int, object] = {
            domain: (domain < 0, tuple(sorted(map(repr, inside.values())))) for domain, inside in held.items()
        }
        found.append(looks)
        inner, keys = [looks[domain] for domain in level], list(level)
    return found


def _bonds(judge: Judge, unit_of: Sequence[int], units: int) -> list[list[tuple[Tier, tuple[int, ...]]]]:
    """By unit: a tier that a required rule names, and the earlier units it must share a domain of it with."""
    found: list[list[tuple[Tier, tuple[int, ...]]]] = [[] for _ in range(units)]
    for axis, rule in ruled_axes(judge.mesh, judge.rules).items():
        if rule.mode != "required" or rule.tier is Tier.ANY:
            continue
        for ranks in together(judge.mesh, axis).tolist():
            members = sorted({unit_of[rank] for rank in ranks})
            for i, unit in enumerate(members):
                found[unit].append((rule.tier, tuple(members[:i][-1:])))
    return found
