"""Rails: ranks that talk across nodes use accelerators of the same index, which hang on the same rail of switches."""

from __future__ import annotations

import numpy as np

from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.placement.seating import Seating


def aligned(mesh: Mesh, seating: Seating) -> Seating:
    """The same ranks on the same pockets, with accelerator indexes such that peers on different nodes share one where
    free accelerators allow: peers in `dp`, in `pp` for a job of one replica. No rule and no cost changes by it."""
    order = np.lexsort((seating.index, seating.pocket))
    starts = np.flatnonzero(np.diff(seating.pocket[order], prepend=-1))
    if len(starts) < 2 or _alike(seating.index[order], starts):
        return seating
    group = _peers(mesh, "dp" if mesh.degree("dp") > 1 else "pp")
    index = seating.index.copy()
    wanted: dict[tuple[int, int], int] = {}
    for ranks in np.split(order, starts[1:]):
        free = set(seating.table.pockets[int(seating.pocket[ranks[0]])].free)
        seen: dict[int, int] = {}
        keys, later = [], []
        for rank in sorted(ranks.tolist()):
            peers = int(group[rank])
            seen[peers] = seen.get(peers, 0) + 1
            keys.append((rank, (peers, seen[peers])))
        for rank, key in keys:
            if (choice := wanted.get(key)) in free and choice is not None:
                free.remove(choice)
                index[rank] = choice
            else:
                later.append((rank, key))
        for (rank, key), choice in zip(later, sorted(free), strict=False):
            wanted.setdefault(key, choice)
            index[rank] = choice
    return Seating(seating.table, seating.pocket, index)


def _alike(indexes: Ranks, starts: Ranks) -> bool:
    """Whether every pocket gives the same accelerators, in which case packing has them in line already."""
    width = int(starts[1])
    if len(indexes) != width * len(starts) or (starts != width * np.arange(len(starts))).any():
        return False
    rows = indexes.reshape(len(starts), width)
    return bool((rows == rows[0]).all())


def _peers(mesh: Mesh, axis: str) -> Ranks:
    """Number of the group of `axis` that each rank belongs to."""
    members = mesh.members((axis,))
    found = np.empty(mesh.size, dtype=np.int64)
    found[members] = np.arange(len(members))[:, None]
    return found
