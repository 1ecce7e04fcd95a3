"""Exact search for rules that counting cannot decide.

Counting (`packing`) is exact unless `dp` is required inside a tier whose domains neither contain nor are contained in
those of another required tier (a leaf half in one spine and half in another, say). Then the rules cut across one
another and the question is a three-way packing, NP-hard in general. Such fabrics are mislabelled rather than large:
this search walks them completely, up to a budget, and says when it gave up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import together
from orchestrator.placement.packing import Place
from orchestrator.placement.pockets import UNKNOWN, PocketTable
from orchestrator.spec.sections import Tier

BUDGET = 200_000
"""Cells tried before giving up: well under a second."""

Cell = tuple[int, ...]
"""Domain number per required axis."""


class SearchCutShortError(RuntimeError):
    """The budget was spent before the search was complete."""


def crossing(table: PocketTable, tiers: Sequence[Tier]) -> bool:
    """Whether the domains of some two of `tiers` overlap without one lying in the other."""
    known = [p for p, pocket in enumerate(table.pockets) if pocket.free and _known(table, p, tiers)]
    for i, a in enumerate(tiers):
        for b in tiers[i + 1 :]:
            pairs = {(table.numbers[a][p], table.numbers[b][p]) for p in known}
            if len(pairs) > len({x for x, _ in pairs}) and len(pairs) > len({y for _, y in pairs}):
                return True
    return False


def search(table: PocketTable, mesh: Mesh, required: Mapping[str, Tier]) -> list[Place] | None:
    """Places by rank that keep every required rule; None when there are none. SearchCutShortError past the budget."""
    tiers = list(required.values())
    slots: dict[Cell, list[Place]] = {}
    for p, pocket in enumerate(table.pockets):
        if pocket.free and _known(table, p, tiers):
            cell = tuple(table.numbers[tier][p] for tier in tiers)
            slots.setdefault(cell, []).extend((p, index) for index in pocket.free)
    set_of = [_sets_by_rank(mesh, axis) for axis in required]
    cells = _Assignment(mesh.size, {cell: len(free) for cell, free in slots.items()}, set_of).solve()
    if cells is None:
        return None
    supply = {cell: iter(free) for cell, free in slots.items()}
    return [next(supply[cell]) for cell in cells]


def _known(table: PocketTable, pocket: int, tiers: Sequence[Tier]) -> bool:
    return all(table.numbers[tier][pocket] != UNKNOWN for tier in tiers)


def _sets_by_rank(mesh: Mesh, axis: str) -> list[int]:
    found = [0] * mesh.size
    for number, ranks in enumerate(together(mesh, axis).tolist()):
        for rank in ranks:
            found[rank] = number
    return found


class _Assignment:
    """A cell for every rank such that ranks of one set of an axis agree in that axis's domain. Backtracking."""

    def __init__(self, size: int, left: dict[Cell, int], set_of: list[list[int]]) -> None:
        self._size = size
        self._left = left
        self._set_of = set_of
        self._domain: list[dict[int, int]] = [{} for _ in set_of]
        self._tried = 0

    def solve(self) -> list[Cell] | None:
        if sum(self._left.values()) < self._size:
            return None
        chosen: list[Cell] = []
        fixed: list[list[int]] = []
        untried: list[list[Cell]] = [self._candidates(0)]
        while untried:
            if len(chosen) == len(untried):  # came back to this rank: undo its last choice
                self._undo(chosen.pop(), len(chosen), fixed.pop())
            if not untried[-1]:
                untried.pop()
                continue
            cell = untried[-1].pop(0)
            fixed.append(self._fix(cell, len(chosen)))
            chosen.append(cell)
            if len(chosen) == self._size:
                return chosen
            untried.append(self._candidates(len(chosen)))
        return None

    def _candidates(self, rank: int) -> list[Cell]:
        """Cells with room that agree with what is fixed, in order."""
        return [
            cell
            for cell in sorted(self._left)
            if self._left[cell]
            and all(self._domain[a].get(s[rank], cell[a]) == cell[a] for a, s in enumerate(self._set_of))
        ]

    def _fix(self, cell: Cell, rank: int) -> list[int]:
        """Takes one slot of `cell`; returns the axes whose set of this rank was fixed by it."""
        self._tried += 1
        if self._tried > BUDGET:
            raise SearchCutShortError
        self._left[cell] -= 1
        new = [a for a, s in enumerate(self._set_of) if s[rank] not in self._domain[a]]
        for a in new:
            self._domain[a][self._set_of[a][rank]] = cell[a]
        return new

    def _undo(self, cell: Cell, rank: int, fixed: list[int]) -> None:
        self._left[cell] += 1
        for a in fixed:
            del self._domain[a][self._set_of[a][rank]]
