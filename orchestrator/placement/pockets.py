"""Free accelerators gathered into pockets: all free slots of one node and one island, alike to every rule.

The solver works on pockets, of which there are about as many as nodes, instead of on slots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.names import natural_key

UNKNOWN = -1
"""Domain number of a pocket whose label at a tier is unknown."""


@dataclass(frozen=True, slots=True)
class Pocket:
    node: str
    free: tuple[int, ...]
    """Indexes of the free accelerators, ascending; may be empty."""
    total: int
    """Accelerators of the pocket, free or not."""
    weak: frozenset[tuple[int, int]] = frozenset()
    """Pairs of its accelerators, lower index first, that fewer links join than the others."""


class PocketTable:
    """Pockets in natural order of nodes, and per tier the number of the domain each lies in.

    Domains of a tier are numbered in natural order of their names, so that sorting numbers sorts names.
    """

    def __init__(self, fabric: Fabric, free: AbstractSet[Slot], usable: Callable[[Node], bool]) -> None:
        self.pockets: list[Pocket] = []
        self.partitioned: dict[str, int] = {}
        """By node how many accelerators are cut into parts: they are in no pocket, and take no ranks."""
        labels: dict[Tier, list[str | None]] = {tier: [] for tier in _TIERS}
        free_on: defaultdict[str, set[int]] = defaultdict(set)
        for slot in free:
            free_on[slot.node].add(slot.index)
        for node in sorted(filter(usable, fabric.nodes), key=lambda node: natural_key(node.name)):
            free_of_node = free_on[node.name]
            if node.partitioned:
                self.partitioned[node.name] = len(node.partitioned)
            for indexes in _islands(fabric, node):
                free_here = tuple(index for index in indexes if index in free_of_node)
                weak = frozenset(pair for pair in node.weak_pairs if {*pair} <= {*indexes})
                self.pockets.append(Pocket(node.name, free_here, len(indexes), weak))
                for tier in _TIERS:
                    labels[tier].append(fabric.domain(Slot(node.name, indexes[0]), tier))
        self.names: dict[Tier, list[str]] = {}
        self.numbers: dict[Tier, list[int]] = {}
        for tier, found in labels.items():
            names = sorted({label for label in found if label is not None}, key=natural_key)
            number = {name: i for i, name in enumerate(names)}
            self.names[tier] = names
            self.numbers[tier] = [UNKNOWN if label is None else number[label] for label in found]
        self.locality: tuple[Tier, ...] = self._locality()

    @cached_property
    def levels(self) -> tuple[list[int], ...]:
        """Domain of each pocket by tier, nearest first. One of unknown label shares a domain (< 0) only with those
        with which it shares a nearer one."""
        nearer = list(range(len(self.pockets)))
        found = []
        for tier in reversed(self.locality):
            first: dict[int, int] = {}
            nearer = [
                number if number != UNKNOWN else -1 - first.setdefault(domain, pocket)
                for pocket, (number, domain) in enumerate(zip(self.numbers[tier], nearer, strict=True))
            ]
            found.append(nearer)
        return tuple(found)

    @cached_property
    def arrays(self) -> Mapping[Tier, NDArray[np.int64]]:
        """`numbers` as arrays."""
        return {tier: np.array(numbers, dtype=np.int64) for tier, numbers in self.numbers.items()}

    @cached_property
    def level_array(self) -> NDArray[np.int64]:
        """`levels` as an array (levels, pockets)."""
        return np.array(self.levels, dtype=np.int64)

    def _locality(self) -> tuple[Tier, ...]:
        """Tiers, widest first. An island is wider than a node where any island spans nodes (NVL72), else narrower."""
        nodes_of: defaultdict[int, set[int]] = defaultdict(set)
        for node, island in zip(self.numbers[Tier.NODE], self.numbers[Tier.ISLAND], strict=True):
            if island != UNKNOWN:
                nodes_of[island].add(node)
        spans = any(len(nodes) > 1 for nodes in nodes_of.values())
        inner = (Tier.ISLAND, Tier.NODE) if spans else (Tier.NODE, Tier.ISLAND)
        return (Tier.CORE, Tier.SPINE, Tier.LEAF, *inner)

    def groups(self, pockets: Sequence[int], tier: Tier, *, unknown: bool = False) -> list[list[int]]:
        """`pockets` by their domain at `tier`, in order of domains; those without one last, and only if asked."""
        numbers = self.numbers[tier]
        found: dict[int, list[int]] = {}
        for pocket in pockets:
            found.setdefault(numbers[pocket], []).append(pocket)
        nowhere = found.pop(UNKNOWN, None)
        groups = [found[number] for number in sorted(found)]
        if unknown and nowhere:
            groups.append(nowhere)
        return groups

    def name(self, tier: Tier, pocket: int) -> str | None:
        number = self.numbers[tier][pocket]
        return None if number == UNKNOWN else self.names[tier][number]

    def wider(self, tier: Tier) -> tuple[Tier, ...]:
        """Tiers wider than `tier`, widest first."""
        return self.locality[: self.locality.index(tier)]

    def narrower(self, tier: Tier | None) -> tuple[Tier, ...]:
        """Tiers narrower than `tier` (None: than everything), narrowest first."""
        start = 0 if tier is None else self.locality.index(tier) + 1
        return tuple(reversed(self.locality[start:]))


_TIERS: tuple[Tier, ...] = (Tier.ISLAND, Tier.NODE, Tier.LEAF, Tier.SPINE, Tier.CORE)


def _islands(fabric: Fabric, node: Node) -> Iterable[list[int]]:
    """Accelerator indexes of `node` by island, in order of their first index; those cut into parts are left out."""
    whole = [index for index in range(node.accelerators) if index not in node.partitioned]
    if not node.islands:
        return [whole] if whole else []
    found: dict[str | None, list[int]] = {}
    for index in whole:
        found.setdefault(fabric.domain(Slot(node.name, index), Tier.ISLAND), []).append(index)
    return found.values()
