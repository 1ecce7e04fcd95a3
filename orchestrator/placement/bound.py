"""A lower bound on the cost of a seating of which only some ranks are seated: what a branch-and-bound search prunes by.

Two seated ranks of one group whose nearest common level is t make their axis take as long at least as if all others of
the group were at the nearest level. A group with members inside and outside a domain passes its uplink: a ring of P
ranks, of which at most P/q lie inside (q: the smallest prime factor of P), with at least B (P - P/q)/(P - 1) bytes; a
flat ring leaves every domain that does not hold it whole over a hop of all B bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.placement.cost import Pricing
from orchestrator.placement.demand import Demand, Pattern
from orchestrator.placement.mesh import Ranks
from orchestrator.placement.priced import combined
from orchestrator.placement.tariff import Tariff

Mark = tuple[int, int, int, int]
"""Axis, group, level, domain: the group passes the domain's uplink into the level."""

Undo = tuple[list[float], list[Mark]]


@dataclass(frozen=True, slots=True)
class _Axis:
    demand: Demand
    peers: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]
    """By unit: others that it shares groups with, and the numbers of those groups (for a chain, neighbours only)."""
    seconds: tuple[float, ...]
    """Least time by level that two members of a group have in common."""
    passing: float
    """Least bytes past an uplink: of a group for a ring, of a pair in one direction otherwise."""


class Bound:
    """`seat` and `unseat` units; `seconds` bounds every completion from below."""

    def __init__(self, pricing: Pricing, unit_of: Sequence[int], levels: Sequence[Sequence[int]]) -> None:
        """`unit_of`: unit of each rank. `levels[i][p]`: domain of pocket p at level i; negative: unknown, its own."""
        self._tariff, self._hidden_s, self._domains = pricing.tariff, pricing.hidden_s, levels
        self._axes = [
            _axis(demand, groups, unit_of, pricing.tariff)
            for demand, groups in zip(pricing.demands, pricing.groups, strict=True)
        ]
        self._least = [0.0] * len(self._axes)
        self._touched: set[Mark] = set()
        self._serial = 0
        """Numbers pairs, below every number of a group."""
        self._load: defaultdict[tuple[int, int, int], float] = defaultdict(float)

    @property
    def seconds(self) -> float:
        return self._combined(self._least)

    def _combined(self, times: Sequence[float]) -> float:
        exposed = sum(t for t, axis in zip(times, self._axes, strict=True) if not axis.demand.overlapped)
        return combined(exposed, sum(times) - exposed, self._hidden_s)

    def at_best(self, room: Sequence[int]) -> float:
        """The bound before anything is seated; `room[i]`: most free accelerators of one domain of level i."""
        times = []
        for axis in self._axes:
            level = next((i for i, free in enumerate(room) if free >= axis.demand.size), len(room))
            times.append(axis.seconds[level])
        return self._combined(times)

    def seat(self, unit: int, pocket: int, seats: Sequence[int]) -> Undo:
        """`seats`: pocket of each unit seated before, -1 for the others. What `unseat` needs."""
        before = list(self._least)
        marked: list[Mark] = []
        for number, axis in enumerate(self._axes):
            least = self._least[number]
            for other, groups in axis.peers[unit]:
                if seats[other] < 0:
                    continue
                level = self._nearest(pocket, seats[other])
                least = max(least, axis.seconds[level])
                for at in self._passed(level):
                    if self._tariff.uplink[at] is not None:
                        for inside in (pocket, seats[other]):
                            least = max(least, self._pass(number, axis, groups, at, inside, marked))
            self._least[number] = least
        return before, marked

    def unseat(self, undo: Undo) -> None:
        self._least, marked = undo
        for key in marked:
            self._touched.discard(key)
            number, _, level, domain = key
            self._load[number, level, domain] -= self._axes[number].passing

    def _nearest(self, a: int, b: int) -> int:
        for level, domains in enumerate(self._domains):
            if domains[a] == domains[b] and domains[a] >= 0:
                return level
        return len(self._domains)

    def _passed(self, level: int) -> range:
        """Levels whose uplinks traffic over `level` passes."""
        out = self._tariff.scale_out
        return range(out, level + 1) if level >= out else range(max(level, 1), level + 1)

    def _pass(
        self,
        number: int,
        axis: _Axis,
        groups: tuple[int, ...],
        level: int,
        pocket: int,
        marked: list[Mark],
    ) -> float:
        """Marks `groups` (a pair of a chain or an exchange) as passing the uplink of the pocket's domain."""
        domain = self._domains[level - 1][pocket]
        capacity = self._tariff.uplink[level]
        if domain < 0 or capacity is None:
            return 0.0
        ring = axis.demand.pattern in (Pattern.RING, Pattern.FLAT_RING)
        for group in groups:
            # A pair is met once, when its second unit is seated; a ring several times.
            self._serial -= 1
            key = (number, group if ring else self._serial, level, domain)
            if key not in self._touched:
                self._touched.add(key)
                marked.append(key)
                self._load[number, level, domain] += axis.passing
        return self._load[number, level, domain] / capacity


def _axis(demand: Demand, groups: Ranks, unit_of: Sequence[int], tariff: Tariff) -> _Axis:
    near: list[defaultdict[int, list[int]]] = [defaultdict(list) for _ in range(max(unit_of) + 1)]
    for number, group in enumerate(groups.tolist()):
        for i, a in enumerate(group):
            for j, b in enumerate(group):
                apart = unit_of[a] != unit_of[b]
                if apart and (demand.pattern is not Pattern.CHAIN or abs(i - j) == 1):
                    near[unit_of[a]][unit_of[b]].append(number)
    size = demand.size
    factor = next(q for q in range(2, size + 1) if size % q == 0)
    match demand.pattern:
        case Pattern.RING:
            out = demand.bytes * (factor - 1) / (size - 1)
            passing = demand.bytes * (size - size / factor) / (size - 1)
        case Pattern.CHAIN | Pattern.FLAT_RING:
            out = passing = demand.bytes
        case Pattern.EXCHANGE:
            out = passing = demand.bytes / (size - 1)
    rest = demand.bytes - out
    best = max(tariff.bandwidth)
    seconds = [
        out / bandwidth + rest / best + demand.messages * latency
        for bandwidth, latency in zip(tariff.bandwidth, tariff.latency_s, strict=True)
    ]
    # The group may yet span a wider level, and measured numbers need not be worse there.
    seconds = [min(seconds[level:]) for level in range(len(seconds))]
    peers = tuple(tuple((unit, tuple(numbers)) for unit, numbers in found.items()) for found in near)
    return _Axis(demand, peers, tuple(seconds), passing)
