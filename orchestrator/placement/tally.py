"""The cost of a seating, kept up to date while units move: only the groups of what moved are priced again.

Prices are those of `cost`. A group's depends alone on which members share a domain, and on which domains have uplinks
of known capacity; what looks the same is priced once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.placement.cost import Pricing, sent_by_level
from orchestrator.placement.demand import Demand, Pattern
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.priced import combined

Uplink = tuple[int, int]
"""Level, domain of the next nearer level."""


@dataclass(frozen=True, slots=True)
class _Price:
    """Of one group, for members on given pockets."""

    link_s: float
    widest: int
    uplinks: tuple[tuple[Uplink, float], ...]
    """Seconds that the group keeps each uplink busy."""


class _Axis:
    """Groups of one demand as tuples of units, equal ones counted, and what they add up to."""

    def __init__(self, demand: Demand, groups: Mapping[tuple[int, ...], int]) -> None:
        self.demand = demand
        self.groups = list(groups)
        self.times = list(groups.values())
        self.prices: list[_Price] = []
        self.busy: dict[Uplink, float] = {}
        self.known: dict[tuple[int, ...], _Price] = {}

    def seconds(self, latency_s: Sequence[float], power: int | None = None) -> float:
        slowest = max(price.link_s for price in self.prices)
        widest = max(price.widest for price in self.prices)
        busiest = max(self.busy.values(), default=0.0)
        if power is not None and busiest > 0:
            busiest *= sum((busy / busiest) ** power for busy in self.busy.values()) ** (1 / power)
        return max(slowest, busiest) + self.demand.messages * latency_s[widest]


class Tally:
    def __init__(
        self, pricing: Pricing, table: PocketTable, unit_of: Sequence[int], seats: Sequence[int]
    ) -> None:
        """`unit_of`: unit of each rank; `seats`: pocket of each unit."""
        self.seats = list(seats)
        self._tariff, self._hidden_s, self._table = pricing.tariff, pricing.hidden_s, table
        self._slowness = 1 / np.array(pricing.tariff.bandwidth)
        used = [
            level
            for level, capacity in zip(table.levels, pricing.tariff.uplink[1:], strict=True)
            if capacity is not None
        ]
        self._uplinked = _numbered([tuple(level[p] for level in used) for p in range(len(table.pockets))])
        """By pocket: which domains with uplinks it lies in, as one number."""
        self._told_apart = _telling(table.levels, self._uplinked)
        """Levels at which it counts besides which members share a domain."""
        self._axes: list[_Axis] = []
        self._in: list[list[tuple[int, int]]] = [[] for _ in seats]  # axis and group by unit
        for demand, ranks in zip(pricing.demands, pricing.groups, strict=True):
            groups = Counter(tuple(unit_of[rank] for rank in group) for group in ranks.tolist())
            axis = _Axis(demand, groups)
            for number, group in enumerate(axis.groups):
                for unit in set(group):
                    if len(set(group)) > 1:
                        self._in[unit].append((len(self._axes), number))
                axis.prices.append(self._price(axis, group))
                self._add(axis, number, 1)
            self._axes.append(axis)

    @property
    def lines(self) -> list[list[tuple[int, ...]]]:
        """By axis the units of its groups, those of several units alone, none of which is in a group twice."""
        spread = [[g for g in axis.groups if len(set(g)) == len(g) > 1] for axis in self._axes]
        return [groups for groups in spread if groups]

    @property
    def rings(self) -> list[tuple[int, ...]]:
        """Units of each ring of more than two."""
        rings = [
            axis.groups for axis in self._axes if axis.demand.pattern in (Pattern.RING, Pattern.FLAT_RING)
        ]
        return [group for groups in rings for group in groups if len(set(group)) == len(group) > 2]

    @property
    def seconds(self) -> float:
        """The cost."""
        return self._combined(None)

    def smoothed(self, power: int) -> float:
        """The cost with the p-norm of the uplinks in place of the busiest: it falls as well when another becomes less
        busy."""
        return self._combined(power)

    def _combined(self, power: int | None) -> float:
        exposed = overlapped = 0.0
        for axis in self._axes:
            seconds = axis.seconds(self._tariff.latency_s, power)
            if axis.demand.overlapped:
                overlapped += seconds
            else:
                exposed += seconds
        return combined(exposed, overlapped, self._hidden_s)

    def move(self, moves: Mapping[int, int]) -> None:
        """Seats units on other pockets."""
        touched = {place for unit in moves for place in self._in[unit]}
        for unit, pocket in moves.items():
            self.seats[unit] = pocket
        for number, group in touched:
            axis = self._axes[number]
            self._add(axis, group, -1)
            axis.prices[group] = self._price(axis, axis.groups[group])
            self._add(axis, group, 1)

    def _add(self, axis: _Axis, group: int, sign: int) -> None:
        times = sign * axis.times[group]
        for uplink, seconds in axis.prices[group].uplinks:
            axis.busy[uplink] = axis.busy.get(uplink, 0.0) + times * seconds

    def _price(self, axis: _Axis, group: tuple[int, ...]) -> _Price:
        pockets = [self.seats[unit] for unit in group]
        look = self._look(pockets)
        price = axis.known.get(look)
        if price is None:
            price = axis.known[look] = self._priced(axis.demand, pockets)
        return price

    def _look(self, pockets: Sequence[int]) -> tuple[int, ...]:
        """Equal for pockets that a group pays the same on."""
        look = [self._uplinked[pocket] for pocket in pockets]
        for level in self._told_apart:
            domains = [level[pocket] for pocket in pockets]
            if level is self._table.levels[0]:  # an unknown island (< 0) is none: every member is alone
                domains = [domain if domain >= 0 else -1 - i for i, domain in enumerate(domains)]
            first: dict[int, int] = {}
            look += [first.setdefault(domain, len(first)) for domain in domains]
        return tuple(look)

    def _priced(self, demand: Demand, pockets: Sequence[int]) -> _Price:
        levels = self._table.level_array[:, list(pockets)]
        domains = np.vstack((levels, np.zeros((1, len(pockets)), dtype=np.int64)))
        alone = domains[0] < 0
        domains[0, alone] = -1 - np.flatnonzero(alone)
        sent = sent_by_level(demand, np.arange(len(pockets))[None, :], domains)
        uplinks: defaultdict[Uplink, float] = defaultdict(float)
        out = self._tariff.scale_out
        for level in range(1, len(sent)):
            capacity = self._tariff.uplink[level]
            if capacity is None:
                continue
            passing = sent[level:].sum(axis=0) if level >= out else sent[level]
            for domain, size in zip(levels[level - 1].tolist(), passing.tolist(), strict=True):
                if domain >= 0 and size:
                    uplinks[level, domain] += size / capacity
        widest = int(np.flatnonzero(sent.any(axis=1)).max(initial=0))
        return _Price(float((self._slowness @ sent).max()), widest, tuple(uplinks.items()))


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    first: dict[Hashable, int] = {}
    return [first.setdefault(key, len(first)) for key in keys]


def _telling(levels: Sequence[Sequence[int]], known: Sequence[int]) -> list[Sequence[int]]:
    """The nearest level, and of the others those that follow neither from `known` nor from the one before."""
    found: list[Sequence[int]] = [levels[0]]
    for level in levels[1:]:
        follows = len(set(zip(known, level, strict=True))) == len(set(known))
        same = len(set(zip(found[-1], level, strict=True))) == len(set(found[-1])) == len(set(level))
        if not follows and not same:
            found.append(level)
    return found
