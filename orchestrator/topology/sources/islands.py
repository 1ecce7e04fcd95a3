"""The inside of one node: which accelerators NVLink or xGMI joins, and by how many links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

Pair = tuple[int, int]
"""Two accelerators, the lower index first."""


def islands_of(count: int, links: Mapping[Pair, int]) -> dict[int, str]:
    """Accelerator -> its island, named `island0`, ... in order of the first one; those without a link have none.

    Accelerators that a chain of links joins are one island: a ring of links carries a ring of ranks.
    """
    parent = list(range(count))

    def root(index: int) -> int:
        while parent[index] != index:
            index = parent[index]
        return index

    for (one, other), number in sorted(links.items()):
        if number > 0:
            low, high = sorted((root(one), root(other)))
            parent[high] = low
    size = Counter(root(index) for index in range(count))
    first = [index for index in range(count) if root(index) == index and size[index] > 1]
    names = {index: f"island{position}" for position, index in enumerate(first)}
    return {index: names[root(index)] for index in range(count) if root(index) in names}


def weak_pairs(islands: Mapping[int, str], links: Mapping[Pair, int]) -> dict[Pair, tuple[int, int]]:
    """Pairs of one island with fewer links than most pairs of it -> their links, and those of most pairs."""
    found: dict[Pair, tuple[int, int]] = {}
    for island in sorted(set(islands.values())):
        members = sorted(index for index, name in islands.items() if name == island)
        pairs = {
            (one, other): links.get((one, other), 0) for one in members for other in members if one < other
        }
        linked = Counter(number for number in pairs.values() if number)
        usual = max(linked, key=lambda number: (linked[number], number))
        found |= {pair: (number, usual) for pair, number in pairs.items() if number < usual}
    return found
