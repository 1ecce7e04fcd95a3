"""What a byte and a message cost at each tier: the fabric's numbers, and defaults that keep the order of tiers.

Levels are tiers, nearest first, as they nest in this fabric: islands inside a node, or nodes inside an island (NVL72).
The two nearest are the scale-up network, the others the scale-out network; the last, `any`, joins what shares nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.spec.sections import Tier
from orchestrator.topology.links import Link

DEFAULTS: Mapping[Tier, tuple[float, float]] = {
    Tier.ISLAND: (450e9, 3e-6),
    Tier.NODE: (55e9, 5e-6),
    Tier.LEAF: (50e9, 8e-6),
    Tier.SPINE: (25e9, 11e-6),
    Tier.CORE: (12.5e9, 14e-6),
    Tier.ANY: (6.25e9, 17e-6),
}
"""(bytes per second of an accelerator in one direction, seconds of a small message), where a fabric has no number.

NVLink 4 (NVIDIA H100 data sheet: 900 GB/s, both directions), PCIe 5 x16 less its protocol, one 400 Gb/s NIC for each
accelerator; each switch tier beyond the leaf half of the one before, as with 2:1 oversubscription. Latencies: a few
microseconds through NVLink and the NIC, three more for the way through each further tier. Only their order and ratio
decide a mapping; a measured fabric brings its own."""


@dataclass(frozen=True, slots=True)
class Tariff:
    """Numbers by level, nearest first."""

    levels: tuple[Tier, ...]
    bandwidth: tuple[float, ...]
    """Bytes per second that one accelerator sends, in one direction."""
    latency_s: tuple[float, ...]
    uplink: tuple[float | None, ...]
    """Bytes per second that a domain of the next nearer level sends into this one; None: as much as its members can."""

    @property
    def scale_out(self) -> int:
        """The first level of the scale-out network: traffic over one of its levels passes the uplinks of the nearer."""
        return 2


def tariff_of(links: Mapping[Tier, Link], levels: Sequence[Tier]) -> Tariff:
    """The numbers of `links`, completed: one unknown beyond a known one keeps the default's ratio to it, one unknown
    before a known one is as good at least. So defaults never turn the order of tiers round."""
    levels = (*levels, *(() if Tier.ANY in levels else (Tier.ANY,)))
    priced = [_priced(levels, tier) for tier in levels]
    known = [links.get(tier, Link()) for tier in priced]
    speeds = _completed([link.bandwidth for link in known], [DEFAULTS[tier][0] for tier in priced])
    swiftness = _completed(
        [_inverse(link.latency_s) for link in known], [1 / DEFAULTS[tier][1] for tier in priced]
    )
    return Tariff(
        levels, tuple(speeds), tuple(1 / value for value in swiftness), tuple(link.uplink for link in known)
    )


def _priced(levels: Sequence[Tier], tier: Tier) -> Tier:
    """Inside an island of many nodes, accelerators of one node are joined as those of the island."""
    inside = tier is Tier.NODE and levels.index(Tier.NODE) < levels.index(Tier.ISLAND)
    return Tier.ISLAND if inside else tier


def _inverse(value: float | None) -> float | None:
    return 1 / value if value else None


def _completed(known: Sequence[float | None], default: Sequence[float]) -> list[float]:
    """`known`, larger is better, and what is missing: by the default's ratio to the nearer one, at most the default and
    at least the wider one."""
    found: list[float] = []
    for i, value in enumerate(known):
        ratio = min(1.0, default[i] / default[i - 1])
        least = default[i] if all(v is None for v in known[:i]) else min(default[i], found[i - 1] * ratio)
        found.append(least if value is None else value)
    for i in range(len(found) - 2, -1, -1):
        if known[i] is None:
            found[i] = max(found[i], found[i + 1])
    return found
