"""How placements are compared: which of them are the same, and how far a predicted order is the measured one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from math import sqrt

from orchestrator.topology.fabric import Slot

Form = tuple[tuple[int, int], ...]
"""Leaf and node of each rank, numbered as they first appear."""


def form(slots: Sequence[Slot], leaf_of: Mapping[str, Hashable]) -> Form:
    """Two placements of one form differ by the names of leaves and nodes alone. Where all leaves and all nodes are
    alike they are one placement, and what differs between their measured times is noise."""
    leaves: dict[Hashable, int] = {}
    nodes: dict[str, int] = {}
    return tuple(
        (leaves.setdefault(leaf_of[slot.node], len(leaves)), nodes.setdefault(slot.node, len(nodes)))
        for slot in slots
    )


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float:
    """Tau-b (Kendall 1945): pairs in the same order less those in the opposite one, over the geometric mean of the
    pairs that each sequence tells apart. ValueError where one of them tells none apart."""
    pairs = list(combinations(zip(a, b, strict=True), 2))
    signs = [((x > u) - (x < u), (y > v) - (y < v)) for (x, y), (u, v) in pairs]
    told_a, told_b = (sum(1 for sign in signs if sign[i]) for i in (0, 1))
    if not told_a or not told_b:
        raise ValueError("all values of a sequence are equal: it has no order")
    return sum(x * y for x, y in signs) / sqrt(told_a * told_b)
