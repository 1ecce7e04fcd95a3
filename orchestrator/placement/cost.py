"""Seconds of communication in a step of a job on a placement, by axis and tier.

Every group sends what `Demand` says. What a rank sends over a level (nearest tier that it shares with the receiver)
takes bytes / bandwidth of the level. All groups of an axis send at the same time, so what the ranks of a domain
together send beyond it also has to pass the domain's uplink: bytes / uplink. The axis takes as long as the slowest of
these, and its messages wait for the latency of the widest level it spans. Axes follow each other; what is overlapped
with backward costs what is longer than backward.

A ring whose members lie in equal numbers in the domains of every tier runs hierarchically: reduce-scatter inside,
all-reduce of the parts outside, all-gather inside (as NCCL does with a NIC for each accelerator). With f_i domains of
level i-1 in one of level i, a rank sends B P/(P-1) (f_i - 1)/(f_0 ... f_i) of its B bytes over level i; the sum is B.
Another ring runs flat, in the order of its ranks, each over its own hop; on CPUs (gloo) all do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from orchestrator.placement.demand import Demand, Pattern, Workload, groups_of
from orchestrator.placement.mesh import Mesh, Ranks
from orchestrator.placement.priced import AxisCost, Cost
from orchestrator.placement.seating import Numbers, Seating
from orchestrator.placement.tariff import Tariff

Sent = NDArray[np.float64]
"""Bytes by (level, rank)."""


class Pricing:
    """The cost of seatings of one job on one fabric; what does not depend on the seating is computed once."""

    def __init__(self, mesh: Mesh, workload: Workload, tariff: Tariff, hidden_s: float) -> None:
        self.mesh, self.tariff, self.hidden_s = mesh, tariff, hidden_s
        self.demands = workload.demands
        self.groups: tuple[Ranks, ...] = tuple(
            groups_of(demand, mesh, workload.parallelism) for demand in workload.demands
        )

    def cost(self, seating: Seating) -> Cost:
        axes = [self._axis(d, g, seating) for d, g in zip(self.demands, self.groups, strict=True)]
        return Cost(tuple(axes), self.hidden_s)

    def _axis(self, demand: Demand, groups: Ranks, seating: Seating) -> AxisCost:
        sent = sent_by_level(demand, groups, seating.distinct)
        tariff = self.tariff
        by_rank = sent.T @ (1 / np.array(tariff.bandwidth))
        slowest = int(by_rank.argmax())
        link_s = float(by_rank[slowest])
        widest = int(np.flatnonzero(sent.any(axis=1)).max(initial=0))
        uplink_s, uplink = self._uplinks(sent, seating)
        by_tier = tuple(
            (tier, float(sent[level, slowest] / tariff.bandwidth[level]))
            for level, tier in enumerate(tariff.levels)
            if sent[level, slowest]
        )
        return AxisCost(
            demand.axis,
            max(link_s, uplink_s) + demand.messages * tariff.latency_s[widest],
            by_tier,
            tariff.levels[widest],
            uplink if uplink_s > link_s else None,
            demand.overlapped,
        )

    def _uplinks(self, sent: Sent, seating: Seating) -> tuple[float, str | None]:
        """Seconds of the busiest uplink, and its name."""
        worst, name = 0.0, None
        out = self.tariff.scale_out
        for level in range(1, len(self.tariff.levels)):
            capacity = self.tariff.uplink[level]
            if capacity is None:
                continue
            passing = sent[level:].sum(axis=0) if level >= out else sent[level]
            tier = self.tariff.levels[level - 1]
            domains = seating.domains[tier]
            known = domains >= 0
            load = np.bincount(domains[known], weights=passing[known])
            if load.size and (busiest := float(load.max()) / capacity) > worst:
                worst, name = busiest, f"{tier} {seating.table.names[tier][int(load.argmax())]}"
        return worst, name


def sent_by_level(demand: Demand, groups: Ranks, domains: Numbers) -> Sent:
    """What every rank sends over each level in a step, (levels, ranks). `domains`: those of `Seating.distinct`."""
    match demand.pattern:
        case Pattern.RING:
            return _ring(demand.bytes, groups, domains)
        case Pattern.FLAT_RING:
            return _flat_ring(demand.bytes, groups, domains)
        case Pattern.CHAIN:
            return _chain(demand.bytes, groups, domains)
        case Pattern.EXCHANGE:
            return _exchange(demand.bytes, groups, domains)


def _nearest(here: Ranks, there: Ranks, domains: Numbers) -> Ranks:
    """The nearest level that two ranks share; all share the last."""
    level: Ranks = (domains[:, here] == domains[:, there]).argmax(axis=0)
    return level


def _chain(size: float, groups: Ranks, domains: Numbers) -> Sent:
    sent = np.zeros(domains.shape)
    level = _nearest(groups[:, :-1], groups[:, 1:], domains)
    sent[level, groups[:, :-1]] += size
    sent[level, groups[:, 1:]] += size
    return sent


def _ring(size: float, groups: Ranks, domains: Numbers) -> Sent:
    sent = np.zeros(domains.shape)
    ranks = groups.shape[1]
    counts, even = _counts(groups, domains)
    nearer = np.concatenate((np.full((1, len(groups)), ranks), counts[:-1]))
    factor = nearer / counts
    share = size * ranks / (ranks - 1) * (factor - 1) / factor.cumprod(axis=0)
    sent[:, groups] = (share * even)[:, :, None]
    return sent if even.all() else sent + _flat_ring(size, groups[~even], domains)


def _flat_ring(size: float, groups: Ranks, domains: Numbers) -> Sent:
    sent = np.zeros(domains.shape)
    sent[_nearest(groups, np.roll(groups, -1, axis=1), domains), groups] += size
    return sent


def _counts(groups: Ranks, domains: Numbers) -> tuple[Ranks, NDArray[np.bool_]]:
    """Domains that each group touches, (levels, groups); and which groups lie evenly in all of them."""
    size = groups.shape[1]
    ordered = np.sort(domains[:, groups], axis=2)
    begins = ordered[:, :, 1:] != ordered[:, :, :-1]
    counts: Ranks = 1 + begins.sum(axis=2)
    # Evenly: a domain begins at every multiple of size / count.
    expected = (np.arange(1, size) * counts[:, :, None]) % size == 0
    even = (size % counts == 0) & (begins == expected).all(axis=2)
    even[1:] &= counts[:-1] % counts[1:] == 0
    return counts, even.all(axis=0)


def _exchange(size: float, groups: Ranks, domains: Numbers) -> Sent:
    sent = np.zeros(domains.shape)
    ranks = groups.shape[1]
    for shift in range(1, ranks):
        there = np.roll(groups, -shift, axis=1)
        sent[_nearest(groups, there, domains), groups] += size / (ranks - 1)
    return sent
