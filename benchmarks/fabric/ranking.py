"""How far a predicted order is the measured one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> float:
    """Tau-b (Kendall 1945): pairs in the same order less those in the opposite one, over the geometric mean of the
    pairs that each sequence tells apart. ValueError where one of them tells none apart."""
    pairs = list(combinations(zip(a, b, strict=True), 2))
    signs = [((x > u) - (x < u), (y > v) - (y < v)) for (x, y), (u, v) in pairs]
    told_a, told_b = (sum(1 for sign in signs if sign[i]) for i in (0, 1))
    if not told_a or not told_b:
        raise ValueError("all values of a sequence are equal: it has no order")
    return sum(x * y for x, y in signs) / sqrt(told_a * told_b)
