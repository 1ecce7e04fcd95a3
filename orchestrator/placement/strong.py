"""Weak pairs: accelerators of one island that fewer links join than the others of it. Tensor groups keep off them.

Which accelerators of a pocket its ranks get is free, so tensor groups on pockets with weak pairs get those among which
the fewest pairs are weak; other pockets stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.pockets import Pocket
from orchestrator.placement.seating import Seating

MOST_TRIED = 20_000
"""Choices for one pocket before the best so far is taken: all of 8 accelerators are a few hundred."""

Indexes = tuple[int, ...]


def strengthened(mesh: Mesh, seating: Seating) -> Seating:
    """The same ranks on the same pockets, with as few weak pairs inside tensor groups as was found."""
    index = seating.index.copy()
    for number, groups in _groups(mesh, seating).items():
        pocket = seating.table.pockets[number]
        held = [tuple(int(index[rank]) for rank in ranks) for ranks in groups]
        if not weak_inside(pocket, held):
            continue
        alone = set(np.flatnonzero(seating.pocket == number).tolist()) - {
            r for ranks in groups for r in ranks
        }
        taken = {int(index[rank]) for rank in alone}
        free = [i for i in pocket.free if i not in taken]
        for ranks, chosen in zip(groups, _chosen(pocket, [len(g) for g in groups], free, held), strict=True):
            index[ranks] = chosen
    return Seating(seating.table, seating.pocket, index)


def weak_sentences(mesh: Mesh, seating: Seating) -> list[str]:
    """One for each node on which tensor groups could not keep off weak pairs."""
    found = []
    for number, groups in sorted(_groups(mesh, seating).items()):
        pocket = seating.table.pockets[number]
        pairs = weak_inside(pocket, [tuple(int(seating.index[rank]) for rank in ranks) for ranks in groups])
        if pairs:
            named = ", ".join(f"{a}-{b}" for a, b in pairs)
            found.append(
                f"tp on node {pocket.node} spans weak pairs, with fewer links than the others: {named}"
            )
    return found


def weak_inside(pocket: Pocket, groups: Sequence[Indexes]) -> list[tuple[int, int]]:
    """Weak pairs that lie inside a group."""
    pairs = {(min(pair), max(pair)) for group in groups for pair in combinations(group, 2)}
    return sorted(pairs & pocket.weak)


def _groups(mesh: Mesh, seating: Seating) -> dict[int, list[list[int]]]:
    """By pocket with weak pairs, the ranks of each tensor group on it, where there are several of one."""
    weak = {number for number, pocket in enumerate(seating.table.pockets) if pocket.weak}
    found: dict[int, list[list[int]]] = {}
    if not weak or mesh.degree("tp") == 1:
        return found
    for group in mesh.members(("tp",)).tolist():
        here: dict[int, list[int]] = {}
        for rank in group:
            here.setdefault(int(seating.pocket[rank]), []).append(rank)
        for number, ranks in here.items():
            if number in weak and len(ranks) > 1:
                found.setdefault(number, []).append(ranks)
    return found


def _chosen(
    pocket: Pocket, sizes: Sequence[int], free: Sequence[int], held: Sequence[Indexes]
) -> list[Indexes]:
    """Accelerators for groups of `sizes`, starting from `held`: depth first, pruned by the weak pairs so far."""
    best, least, tried = list(held), len(weak_inside(pocket, held)), 0

    def seat(done: list[Indexes], left: Sequence[int], weak: int) -> None:
        nonlocal best, least, tried
        if weak >= least or tried > MOST_TRIED:
            return
        if len(done) == len(sizes):
            best, least = list(done), weak
            return
        for chosen in combinations(left, sizes[len(done)]):
            tried += 1
            more = len(weak_inside(pocket, [chosen]))
            seat([*done, chosen], [i for i in left if i not in chosen], weak + more)

    seat([], sorted(free), 0)
    return best
