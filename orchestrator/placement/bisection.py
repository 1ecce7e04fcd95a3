"""Places to begin a search at: the mesh of a job, cut in two again and again until its parts fit under switches.

Recursive bisection, as graphs and meshes are partitioned (Simon 1991, "Partitioning of unstructured problems for
parallel processing"). Where it is free to choose it draws: a job gives many seatings; a few are worth improving.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from orchestrator.placement.mesh import Ranks

CUT_ANYWAY = 0.1
"""Chance that a part is cut although it fits somewhere whole."""
TIGHTEST = 0.8
"""Chance that a part goes where it leaves least room, not anywhere that it fits."""
IN_ORDER = 0.7
"""Chance that a part is cut along the first axis of the order that was drawn for the whole seating."""
HALVED = 0.8
"""Chance that a cut is in the middle."""


@dataclass
class _Domain:
    number: int
    pocket: int | None
    """Of a domain that is one pocket."""
    children: dict[int, _Domain] = field(default_factory=dict)


class Bisection:
    def __init__(self, units: Ranks, rooms: Sequence[int], levels: Sequence[Sequence[int]]) -> None:
        """`units`: numbers of the units in the shape of the mesh; `rooms`: by pocket, how many units it has room for,
        all together at least as many as there are; `levels`: by level, nearest first, the domain of each pocket."""
        self._units = units
        self._root = _Domain(0, None)
        self._rooms = [sum(rooms)]
        """By domain."""
        for pocket, room in enumerate(rooms):
            domain = self._root
            for label in (level[pocket] for level in reversed(levels)):
                domain = self._child(domain, label, None, room)
            self._child(domain, pocket, pocket, room)

    def _child(self, of: _Domain, label: int, pocket: int | None, room: int) -> _Domain:
        child = of.children.get(label)
        if child is None:
            child = of.children[label] = _Domain(len(self._rooms), pocket)
            self._rooms.append(0)
        self._rooms[child.number] += room
        return child

    def seats(self, random: Random) -> list[int]:
        """Pocket of each unit."""
        return _Draw(self._units, list(self._rooms), random).seats(self._root)


class _Draw:
    def __init__(self, units: Ranks, left: list[int], random: Random) -> None:
        self._units, self._left, self._random = units, left, random
        self._axes = random.sample(range(units.ndim), units.ndim)
        self._seats = [-1] * units.size

    def seats(self, root: _Domain) -> list[int]:
        self._place(self._units, root)
        return self._seats

    def _place(self, part: Ranks, domain: _Domain) -> None:
        if domain.pocket is not None:
            for unit in part.flat:
                self._seats[unit] = domain.pocket
            return
        fitting = [child for child in domain.children.values() if self._left[child.number] >= part.size]
        if not fitting or (part.size > 1 and self._random.random() < CUT_ANYWAY):
            for half in self._halves(part):
                self._place(half, domain)
            return
        tightest = self._random.random() < TIGHTEST
        child = min(fitting, key=self._room) if tightest else self._random.choice(fitting)
        self._left[child.number] -= part.size
        self._place(part, child)

    def _room(self, domain: _Domain) -> int:
        return self._left[domain.number]

    def _halves(self, part: Ranks) -> list[Ranks]:
        random = self._random
        axes = [axis for axis in self._axes if part.shape[axis] > 1]
        axis = axes[0] if random.random() < IN_ORDER else random.choice(axes)
        length = part.shape[axis]
        cut = length // 2 if random.random() < HALVED else random.randrange(1, length)
        before = (slice(None),) * axis
        halves = [part[(*before, slice(cut))], part[(*before, slice(cut, None))]]
        random.shuffle(halves)
        return halves
