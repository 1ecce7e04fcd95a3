"""Packs blocks of ranks into domains, level by level, by counting.

A job is a nest of blocks: with the order tp, pp, dp a block of level 0 is a tensor group, of level 1 a pipeline, of
level 2 the job. A level that is *confined* to a tier needs every block inside one domain of it. Because every block of
an inner level lies inside the domain its outer block is confined to, a free slot belongs to exactly one cell
(combination of domains), and the number of blocks that fit is a sum of floors: counting is exact whatever the labels
look like. Taking a whole block out of a cell lowers every count it takes part in by exactly one, so preferences (fewest
domains, whole islands kept whole) can be followed greedily without ever losing a block.

A *soft* level prefers its tier: as many blocks as possible inside one domain of it, the rest inside one of the next
wider tier, and so on; it never lowers what fits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.placement.pockets import UNKNOWN, PocketTable
from orchestrator.spec.sections import Tier


@dataclass(frozen=True, slots=True)
class Level:
    axis: str
    degree: int
    """Blocks of the level below in one block of this one."""
    tier: Tier | None
    """Tier whose domains hold one block each; None: anywhere."""
    soft: bool = False


Pockets = Sequence[int]
Place = tuple[int, int]
"""Number of a pocket, index of an accelerator on its node."""


class Packer:
    """One packing under way: `take` uses slots up."""

    def __init__(self, table: PocketTable, levels: Sequence[Level]) -> None:
        self._table = table
        self._levels = tuple(levels)
        self._sizes = [1]
        for level in self._levels:
            self._sizes.append(self._sizes[-1] * level.degree)
        self._left = [len(pocket.free) for pocket in table.pockets]
        self._free = {tier: self._per_domain(tier, self._left) for tier in table.locality}
        totals = [pocket.total for pocket in table.pockets]
        self._total = {tier: self._per_domain(tier, totals) for tier in table.locality}

    def _per_domain(self, tier: Tier, counts: Sequence[int]) -> list[int]:
        found = [0] * (len(self._table.names[tier]) + 1)  # the last place is that of UNKNOWN (-1)
        for number, count in zip(self._table.numbers[tier], counts, strict=True):
            found[number] += count
        return found

    def pack(self) -> list[Place] | None:
        """Places of one block of the outermost level, innermost axis fastest; None when it does not fit."""
        everything = range(len(self._table.pockets))
        top = len(self._levels) - 1
        if self.capacity(everything, top) < 1:
            return None
        return self._take(everything, top, 1)

    def capacity(self, pockets: Pockets, level: int) -> int:
        """Blocks of `level` (-1: slots) that fit into the free slots of `pockets`."""
        if level < 0:
            return sum(self._left[pocket] for pocket in pockets)
        step = self._levels[level]
        if step.tier is None or step.soft:
            return self.capacity(pockets, level - 1) // step.degree
        return self._confined(pockets, level, step.tier)

    def _confined(self, pockets: Pockets, level: int, tier: Tier) -> int:
        """Blocks of `level` that fit with each inside one domain of `tier`."""
        if level < 0:
            return self.capacity(pockets, level)
        degree = self._levels[level].degree
        return sum(self.capacity(group, level - 1) // degree for group in self._table.groups(pockets, tier))

    def _take(self, pockets: Pockets, level: int, count: int) -> list[Place]:
        """`count` blocks of `level`; the caller has made sure that they fit."""
        if count == 0:
            return []
        if level < 0:
            return self._spread(pockets, level, count, self._table.locality[-1])
        step = self._levels[level]
        if step.tier is None:
            return self._take_inside(pockets, level, count)
        if not step.soft:
            return self._spread(pockets, level, count, step.tier)
        taken: list[Place] = []
        for tier in (step.tier, *reversed(self._table.wider(step.tier))):
            fit = min(count, self._confined(pockets, level, tier))
            taken += self._spread(pockets, level, fit, tier)
            count -= fit
            if count == 0:
                return taken
        return taken + self._take(pockets, level - 1, count * step.degree)

    def _take_inside(self, pockets: Pockets, level: int, count: int) -> list[Place]:
        """Blocks that already are where their tier wants them: each in as narrow a domain as holds it."""
        step = self._levels[level]
        taken: list[Place] = []
        for tier in self._table.narrower(step.tier):
            if count == 0:
                return taken
            fit = min(count, self._confined(pockets, level, tier))
            taken += self._spread(pockets, level, fit, tier)
            count -= fit
        return taken + self._take(pockets, level - 1, count * step.degree)

    def _spread(self, pockets: Pockets, level: int, count: int, tier: Tier) -> list[Place]:
        """`count` blocks, each inside one domain of `tier`, over as few and as near domains as will do."""
        if count == 0:
            return []
        groups = self._table.groups(pockets, tier)
        serving = [group for group in groups if self._in_one(group, level) >= count]
        if serving:
            return self._finish(
                min(serving, key=lambda g: self._cost(g, level, count, tier)), level, count, tier
            )
        return self._descend(pockets, level, count, (*self._table.wider(tier), tier))

    def _descend(self, pockets: Pockets, level: int, count: int, path: tuple[Tier, ...]) -> list[Place]:
        """Follows `path` from the widest tier to the confining one, choosing domains at each."""
        tier, rest, last = path[0], path[1:], path[-1]
        groups = self._table.groups(pockets, tier, unknown=bool(rest) or level < 0)
        if rest and len(groups) == 1:
            return self._descend(groups[0], level, count, rest)
        room = [self._confined(group, level, last) for group in groups]
        taken: list[Place] = []
        for i, share in self._choose(groups, room, level, min(count, sum(room)), tier):
            if rest:
                taken += self._descend(groups[i], level, share, rest)
            else:
                taken += self._finish(groups[i], level, share, tier)
            count -= share
        if count:  # domains of the confining tier that lie across domains of this one
            assert rest, "taking whole blocks never loses one"
            taken += self._descend(pockets, level, count, rest)
        return taken

    def _choose(
        self, groups: list[list[int]], room: list[int], level: int, count: int, tier: Tier
    ) -> list[tuple[int, int]]:
        """(group, share): the fullest rooms first, then the best fit for what is left; in order of groups."""
        waiting = deque(sorted((i for i in range(len(groups)) if room[i]), key=lambda i: (-room[i], i)))
        chosen: list[tuple[int, int]] = []
        while count and waiting:
            if count <= room[waiting[0]]:
                wanted = count
                fitting = [i for i in waiting if room[i] >= wanted]
                best = min(fitting, key=lambda i: self._cost(groups[i], level, wanted, tier))
                chosen.append((best, wanted))
                break
            i = waiting.popleft()
            chosen.append((i, room[i]))
            count -= room[i]
        return sorted(chosen)

    def _in_one(self, group: Pockets, level: int) -> int:
        """Blocks of `level` that fit into one domain."""
        if level < 0:
            return self.capacity(group, level)
        return self.capacity(group, level - 1) // self._levels[level].degree

    def _cost(self, group: Pockets, level: int, count: int, tier: Tier) -> tuple[int, ...]:
        """What choosing this domain costs: whole domains broken (narrow ones first), then slots left over."""
        used = count * self._sizes[level + 1]
        broken: list[int] = []
        left: list[int] = []
        for at in (tier, *reversed(self._table.wider(tier))):
            number = self._table.numbers[at][group[0]]
            if number == UNKNOWN:
                continue
            free = self._free[at][number]
            broken.append(int(free == self._total[at][number] and free > used))
            left.append(free - used)
        padding = [0] * (len(self._table.locality) - len(broken))
        return (*broken, *padding, *left, *padding, group[0])

    def _finish(self, domain: Pockets, level: int, count: int, tier: Tier) -> list[Place]:
        """`count` blocks inside one domain."""
        if level < 0:
            return self._pop(domain, count)
        if tier is self._levels[level].tier:
            return self._take_inside(domain, level, count)
        return self._take(domain, level - 1, count * self._levels[level].degree)

    def _pop(self, pockets: Pockets, count: int) -> list[Place]:
        taken: list[Place] = []
        for i in pockets:
            pocket = self._table.pockets[i]
            share = min(count - len(taken), self._left[i])
            first = len(pocket.free) - self._left[i]
            taken += [(i, index) for index in pocket.free[first : first + share]]
            self._left[i] -= share
            for tier in self._table.locality:
                self._free[tier][self._table.numbers[tier][i]] -= share
        return taken
