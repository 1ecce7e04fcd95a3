"""What measurements say of a fabric: numbers of its tiers, links that are bad, what was declared otherwise.

Numbers are medians. A link is bad when it carries less than `BAD` of what its like carry: a unit (a node, a leaf's
uplink) when half of its pairs do, and it is the worst of all; then the rest is looked at without it. Of two units that
only measure with each other neither can be told bad: there the declared number is what they are held against.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.links import Link
from orchestrator.topology.names import natural_key
from orchestrator.topology.probe.rounds import Pair, units_by_tier

BAD = 0.7
"""Share of the median below which a link is bad: half a link (a lane or a rail lost) is; noise is not."""
AGREES = 0.2
"""Relative difference of a declared and a measured number up to which they are taken to agree."""
SHARED = 0.9
"""Share of what pairs carry one by one that they carry together when no uplink holds them back."""


@dataclass(frozen=True, slots=True)
class Measurement:
    pair: Pair
    tier: Tier
    number: int
    """Of the round."""
    loaded: bool = False
    out: float = 0.0
    """Bytes per second from `pair.a` to `pair.b`; `back`: from b to a."""
    back: float = 0.0
    latency_s: float = 0.0
    """One way, of a small message."""
    error: str | None = None
    """Why there are no numbers."""

    @property
    def worse(self) -> float:
        return min(self.out, self.back)


@dataclass(frozen=True, slots=True)
class TierFinding:
    tier: Tier
    measured: Link
    declared: Link
    pairs: int


@dataclass(frozen=True, slots=True)
class BadLink:
    tier: Tier
    where: str
    """`node n3`, `leaf l1`, `n1-n2`."""
    nodes: tuple[str, ...]
    share: float
    """Of the median of its like; 0 when nothing passed."""
    message: str


@dataclass(frozen=True, slots=True)
class Findings:
    fabric: Fabric
    """With measured numbers; nodes with bad links are suspect."""
    tiers: tuple[TierFinding, ...]
    bad: tuple[BadLink, ...]
    messages: tuple[str, ...]
    """What confirms, contradicts or completes what was declared, one sentence each."""


def findings(fabric: Fabric, measurements: Sequence[Measurement]) -> Findings:
    good = [m for m in measurements if m.error is None]
    bad = (*_silent(measurements), *_bad(fabric, good))
    tiers = tuple(
        _tier_finding(tier, _sound(some, bad), fabric)
        for tier in Tier
        if (some := [m for m in good if m.tier is tier])
    )
    links = dict(fabric.links)
    for found in tiers:
        links[found.tier] = _completed(found.measured, found.declared)
    suspects = {link.nodes[0] for link in bad if link.where.startswith("node ")}
    nodes = tuple(replace(n, suspect=True) if n.name in suspects else n for n in fabric.nodes)
    messages = tuple(sentence for found in tiers for sentence in _compared(found))
    return Findings(Fabric(nodes, links), tiers, bad, messages)


def _sound(some: Sequence[Measurement], bad: Sequence[BadLink]) -> Sequence[Measurement]:
    """Those that are not of a bad link, if there are any."""
    units = [link for link in bad if " " in link.where]
    pairs = {link.nodes for link in bad if " " not in link.where}
    blamed = {name for link in units for name in link.nodes}
    sound = [m for m in some if not {*_nodes(m.pair)} & blamed and _nodes(m.pair) not in pairs]
    return sound or some


def _tier_finding(tier: Tier, some: Sequence[Measurement], fabric: Fabric) -> TierFinding:
    alone = [m for m in some if not m.loaded] or some
    bandwidth = median(rate for m in alone for rate in (m.out, m.back))
    latency = median(m.latency_s for m in alone)
    uplink = _uplink(tier, some, fabric, bandwidth)
    declared = fabric.links.get(tier, Link())
    return TierFinding(
        tier, Link(declared.kind, bandwidth, latency, uplink, measured=True), declared, len(some)
    )


def _uplink(tier: Tier, some: Sequence[Measurement], fabric: Fabric, alone: float) -> float | None:
    """Median of what units send into the tier when all their nodes do; None when that is as much as they can."""
    units = units_by_tier(fabric.nodes).get(tier, {})
    sums: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
    for m in some:
        if m.loaded:
            sums[m.number, units[m.pair.a.node], "out"].append(m.out)
            sums[m.number, units[m.pair.b.node], "back"].append(m.back)
    several = [rates for rates in sums.values() if len(rates) > 1]
    if not several or median(sum(rates) / (len(rates) * alone) for rates in several) >= SHARED:
        return None
    return median(sum(rates) for rates in several)


def _completed(measured: Link, declared: Link) -> Link:
    return replace(measured, uplink=declared.uplink if measured.uplink is None else measured.uplink)


def _silent(measurements: Sequence[Measurement]) -> list[BadLink]:
    """Pairs that gave no numbers, and nodes that gave none in any pair."""
    answered = {end.node for m in measurements if m.error is None for end in (m.pair.a, m.pair.b)}
    found, told = [], set()
    for m in measurements:
        if m.error is None:
            continue
        dumb = [end.node for end in (m.pair.a, m.pair.b) if end.node not in answered]
        for name in dict.fromkeys(dumb):
            if name not in told:
                told.add(name)
                text = f"node {name}: no pair with it gave an answer: {m.error}"
                found.append(BadLink(m.tier, f"node {name}", (name,), 0.0, text))
        if not dumb:
            where = _between(m.pair)
            text = f"{where}: no answer over the {m.tier}: {m.error}"
            found.append(BadLink(m.tier, where, _nodes(m.pair), 0.0, text))
    return found


def _between(pair: Pair) -> str:
    nodes = _nodes(pair)
    return f"node {nodes[0]}" if len(nodes) == 1 else "-".join(nodes)


def _nodes(pair: Pair) -> tuple[str, ...]:
    return tuple(sorted({pair.a.node, pair.b.node}, key=natural_key))


def _bad(fabric: Fabric, good: Sequence[Measurement]) -> list[BadLink]:
    """Tier by tier, nearest first: what a unit is found bad at is not held against what lies around it."""
    around = units_by_tier(fabric.nodes)
    found: list[BadLink] = []
    blamed: set[str] = set()
    for tier in Tier:
        some = [m for m in good if m.tier is tier and not {m.pair.a.node, m.pair.b.node} & blamed]
        inside = [m for m in some if m.pair.a.node == m.pair.b.node]
        between = [m for m in some if m.pair.a.node != m.pair.b.node]
        mine = [*_outliers(tier, inside, {m.pair.a.node: m.pair.a.node for m in inside})]
        mine += _outliers(tier, between, around.get(tier, {}))
        found += mine
        blamed |= {name for link in mine if " " in link.where for name in link.nodes}
    return found


def _outliers(tier: Tier, some: Sequence[Measurement], units: Mapping[str, str]) -> list[BadLink]:
    """Units that are bad, worst first, then single pairs; their shares are of what is left without them."""
    blamed, left = [], list(some)
    while (unit := _worst(left, units)) is not None:
        blamed.append(unit)
        left = [m for m in left if unit not in _units_of(m, units)]
    usual = _usual(left)
    found = []
    for unit in blamed:
        mine = [m for m in some if unit in _units_of(m, units) and usual.get(m.loaded)]
        members = tuple(name for name, of in units.items() if of == unit)
        where = unit if " " in unit else f"node {unit}"
        found.append(_bad_link(tier, where, members, mine, usual))
    for m in left:
        if m.worse < BAD * usual[m.loaded]:
            found.append(_bad_link(tier, _between(m.pair), _nodes(m.pair), [m], usual))
    return found


def _bad_link(
    tier: Tier, where: str, nodes: tuple[str, ...], mine: Sequence[Measurement], usual: Mapping[bool, float]
) -> BadLink:
    share = median(m.worse / usual[m.loaded] for m in mine)
    alone = [m for m in mine if not m.loaded] or mine
    rate, others = median(m.worse for m in alone), usual[alone[0].loaded]
    text = f"{where}: {rate_text(rate)} over the {tier}, others {rate_text(others)}"
    return BadLink(tier, where, nodes, share, text)


def _units_of(m: Measurement, units: Mapping[str, str]) -> set[str]:
    return {units[m.pair.a.node], units[m.pair.b.node]}


def _usual(some: Sequence[Measurement]) -> dict[bool, float]:
    """Median by whether the round was loaded."""
    return {kind: median(m.worse for m in some if m.loaded is kind) for kind in {m.loaded for m in some}}


def _worst(some: Sequence[Measurement], units: Mapping[str, str]) -> str | None:
    """The unit half of whose pairs are bad and which is worse than all others; None when there is none, or when it has
    but one partner, which is as likely to blame."""
    usual = _usual(some)
    shares: defaultdict[str, list[float]] = defaultdict(list)
    partners: defaultdict[str, set[str]] = defaultdict(set)
    for m in some:
        for unit in _units_of(m, units):
            shares[unit].append(m.worse / usual[m.loaded] if usual[m.loaded] else 0.0)
            partners[unit] |= _units_of(m, units) - {unit}
    worst = min(shares, key=lambda unit: (median(shares[unit]), unit), default=None)
    if worst is None or median(shares[worst]) >= BAD or len(partners[worst]) == 1:
        return None
    return worst


def _compared(found: TierFinding) -> list[str]:
    pairs = (
        ("bandwidth", found.measured.bandwidth, found.declared.bandwidth),
        ("uplink", found.measured.uplink, found.declared.uplink),
    )
    sentences = []
    for what, measured, declared in pairs:
        if measured is None:
            continue
        if declared is None:
            sentences.append(f"{found.tier}: {what} {rate_text(measured)} measured, none declared")
        elif abs(measured - declared) <= AGREES * declared:
            sentences.append(
                f"{found.tier}: {what} {rate_text(measured)} measured confirms {rate_text(declared)} declared"
            )
        else:
            sentences.append(
                f"{found.tier}: {what} {rate_text(measured)} measured contradicts {rate_text(declared)} declared; "
                "the measured one counts"
            )
    return sentences


def rate_text(bytes_per_s: float) -> str:
    """`1.25 MB/s`, `48 GB/s`."""
    for limit, unit in ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s")):
        if bytes_per_s >= limit:
            return f"{bytes_per_s / limit:.3g} {unit}"
    return f"{bytes_per_s:.3g} B/s"
