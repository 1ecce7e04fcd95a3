"""From slow intervals of several signals to one finding each: what computes slowly explains who waits, never the
reverse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.health.layout import Layout
from orchestrator.health.track import Interval
from orchestrator.health.verdict import Imbalance, Kind, Straggler, Uneven

SCATTERED = 0.6
"""An interval with fewer slow steps than this share comes and goes: it is periodic."""
LEAST_LASTING = 0.075
"""Mean excess beyond what is normal from which an interval is reported; what is below is a trend."""
LEAST_OVER_PEERS = 0.05
"""A rank that was quicker than its peers and is like them now is no straggler, however much it changed."""
AT_ONCE = 0.5
"""Intervals overlap when the shorter one shares so much of itself."""
ALIKE = 1.5
"""Excesses of one cause differ at most by this factor."""
LEAST_COLLECTIVE_FACTOR = 1.3
HISTORY_CONFIDENCE = 0.7
"""What a rank's own past says is worth less than what its peers say."""
UNCONFIRMED = 0.85
"""A slow rank that waits as much as its peers is worth less, too."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Intervals by signal. Subjects of links are places in `Layout.pairs`, all others places of ranks."""

    compute: Sequence[Interval]
    busy: Sequence[Interval]
    links: Sequence[Interval]
    collective: Sequence[Interval]


def stragglers(
    layout: Layout, suspects: Suspects, first_step: int, last_step: int
) -> tuple[list[Straggler], list[Imbalance]]:
    """Findings by first step and rank, and replicas that have more work than others."""
    slow = [interval for interval in suspects.compute if _counts(interval)]
    outside = [
        interval
        for interval in suspects.busy
        if _counts(interval)
        and not any(_at_once(interval, other) for other in slow if other.subject == interval.subject)
    ]
    replicas, moved = _replicas(layout, slow)
    slow = [interval for interval in slow if id(interval) not in moved]
    nodes = _nodes(layout, slow)
    found = [_of_rank(layout, interval, nodes.get(id(interval)), first_step, last_step) for interval in slow]
    found += [_outside(layout, interval, first_step, last_step) for interval in outside]
    culprits = [*slow, *outside, *(i for i in suspects.compute if id(i) in moved)]
    found += _slow_links(layout, suspects, culprits)
    return sorted(found, key=lambda one: (one.from_step, one.rank)), replicas


def _counts(interval: Interval) -> bool:
    return interval.lasting >= LEAST_LASTING and interval.factor - 1 >= LEAST_OVER_PEERS


def _of_rank(layout: Layout, interval: Interval, node: str | None, first: int, last: int) -> Straggler:
    place = interval.subject
    kind = _pattern(interval, last)
    if interval.garbage > 0.5 * interval.excess:
        kind = Kind.GARBAGE
    if node is not None:
        kind = Kind.NODE
    told_by = "its own past" if interval.historic else "its peers"
    again = f", every {_period(interval)} steps" if kind is Kind.PERIODIC else ""
    where = f" like all ranks of node {node}" if node is not None else ""
    reason = f"computes {interval.factor:.2f} times as long as {told_by}{again}{where}"
    return _straggler(layout.ranks[place], kind, interval, reason, node=node)


def _outside(layout: Layout, interval: Interval, first: int, last: int) -> Straggler:
    """A rank that is late without computing longer. Where computing hides waiting (backward that runs into its all-
    reduce) the parts of its step add up to the whole, and it is its computing after all."""
    if interval.garbage > 0.5 * interval.excess:
        kind, reason = Kind.GARBAGE, "is late by garbage collection"
    elif layout.pairs or interval.unexplained >= 0.5 * interval.excess:
        kind, reason = Kind.DATA_LOADER, "computes as fast as its peers but spends time outside of it"
    else:
        kind, reason = _pattern(interval, last), "waits least: all others wait for it"
    seconds = interval.excess / max(1, interval.slow_steps)
    return _straggler(layout.ranks[interval.subject], kind, interval, f"{reason}, {seconds:.3g} s a step")


def _pattern(interval: Interval, last: int) -> Kind:
    if interval.period is not None or interval.density <= SCATTERED:
        return Kind.PERIODIC
    if not interval.is_open:
        return Kind.TRANSIENT
    return Kind.CONSTANT if interval.from_start else Kind.ONSET


def _period(interval: Interval) -> int:
    return interval.period or max(2, round(1 / interval.density))


def _straggler(
    rank: int,
    kind: Kind,
    interval: Interval,
    reason: str,
    *,
    node: str | None = None,
    peer: int | None = None,
    factor: float | None = None,
) -> Straggler:
    return Straggler(
        rank=rank,
        kind=kind,
        from_step=interval.from_step,
        to_step=interval.to_step,
        factor=interval.factor if factor is None else factor,
        cost_s=interval.excess,
        confidence=_confidence(interval, link=kind is Kind.LINK),
        detected_step=interval.detected_step,
        reason=reason,
        node=node,
        peer=peer,
        period=_period(interval) if kind is Kind.PERIODIC else None,
        ongoing=interval.is_open,
    )


def _confidence(interval: Interval, *, link: bool) -> float:
    """More slow steps, fewer quiet ones between them, peers that waited meanwhile."""
    n = interval.slow_steps
    shares = 1.0 if interval.period is not None else interval.density
    confidence = shares * n / (n + 1)
    if interval.historic > n / 2:
        confidence *= HISTORY_CONFIDENCE
    elif not link and interval.spared != 0 and interval.spared < 0.3 * interval.excess:
        confidence *= UNCONFIRMED
    return confidence


def _at_once(one: Interval, other: Interval) -> bool:
    """Whether two intervals share most of the shorter one."""
    shared = min(one.to_step, other.to_step) - max(one.from_step, other.from_step) + 1
    shorter = min(one.to_step - one.from_step, other.to_step - other.from_step) + 1
    return shared >= AT_ONCE * shorter


def _alike(one: Interval, other: Interval) -> bool:
    low, high = sorted((one.factor - 1, other.factor - 1))
    return _at_once(one, other) and high <= ALIKE * low


def _nodes(layout: Layout, slow: Sequence[Interval]) -> dict[int, str]:
    """Intervals (by id) that all ranks of a node share; a node that is the whole job is no finding."""
    found: dict[int, str] = {}
    for node in sorted(set(layout.node)):
        places = {i for i, name in enumerate(layout.node) if name == node}
        if len(places) < 2 or len(places) == len(layout):
            continue
        for interval in slow:
            if interval.subject not in places:
                continue
            together = {other.subject for other in slow if _alike(interval, other)}
            if places <= together:
                found[id(interval)] = node
    return found


def _replicas(layout: Layout, slow: Sequence[Interval]) -> tuple[list[Imbalance], set[int]]:
    """All stages of one replica, slow at once: its data, not its machines, unless they are one node."""
    found: list[Imbalance] = []
    moved: set[int] = set()
    if not layout.pairs:
        return found, moved
    for replica in sorted(set(layout.replica)):
        places = {i for i, r in enumerate(layout.replica) if r == replica}
        if len(places) < 2 or (layout.nodes_named and len({layout.node[i] for i in places}) == 1):
            continue
        for interval in slow:
            if interval.subject not in places or id(interval) in moved:
                continue
            together = [other for other in slow if other.subject in places and _alike(interval, other)]
            if {other.subject for other in together} != places:
                continue
            moved |= {id(other) for other in together}
            found.append(_replica(layout, together))
    return found, moved


def _replica(layout: Layout, together: Sequence[Interval]) -> Imbalance:
    ranks = tuple(sorted({layout.ranks[interval.subject] for interval in together}))
    factor = sum(interval.factor for interval in together) / len(together)
    return Imbalance(
        Uneven.REPLICA,
        ranks,
        None,
        min(interval.from_step for interval in together),
        max(interval.to_step for interval in together),
        factor,
        max(interval.excess for interval in together),
        f"all stages of the pipeline of ranks {', '.join(map(str, ranks))} take {factor:.2f} times as long at the same "
        "time: its micro-batches hold more work",
    )


def _slow_links(layout: Layout, suspects: Suspects, culprits: Iterable[Interval]) -> list[Straggler]:
    """Links whose waiting no slow rank explains. Waits spread along a pipeline: the pair that waits longest is
    named."""
    culprits = list(culprits)
    found = []
    for link in suspects.links:
        sender, receiver = layout.pairs[link.subject]
        replica = layout.replica[sender]
        in_pipeline = [c for c in culprits if layout.replica[c.subject] == replica]
        rivals = [
            o
            for o in suspects.links
            if layout.replica[layout.pairs[o.subject][0]] == replica and o is not link
        ]
        if any(_at_once(link, culprit) for culprit in in_pipeline):
            continue
        if any(_at_once(link, rival) and _per_step(rival) > _per_step(link) for rival in rivals):
            continue
        a, b = layout.ranks[sender], layout.ranks[receiver]
        reason = f"ranks {a} and {b} wait {link.factor:.2f} times as long for each other as other pairs of their stages"
        found.append(_straggler(a, Kind.LINK, link, reason, peer=b))
    return found + _slow_collectives(layout, suspects, culprits)


def _slow_collectives(layout: Layout, suspects: Suspects, culprits: Sequence[Interval]) -> list[Straggler]:
    """Ranks that are longer in a collective than their peers although they come no earlier."""
    found = []
    for one in suspects.collective:
        place = one.subject
        if one.factor < LEAST_COLLECTIVE_FACTOR or any(_at_once(one, culprit) for culprit in culprits):
            continue
        others = [
            o.subject
            for o in suspects.collective
            if o is not one and layout.stage[o.subject] == layout.stage[place] and _alike(one, o)
        ]
        peer = layout.ranks[others[0]] if len(others) == 1 else None
        reason = f"is {one.factor:.2f} times as long in collectives as its peers although it comes no earlier"
        found.append(_straggler(layout.ranks[place], Kind.LINK, one, reason, peer=peer))
    return found


def _per_step(interval: Interval) -> float:
    return interval.excess / max(1, interval.slow_steps)
