"""Which path the ranks of a group share, from how many accelerators each tier joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from orchestrator.estimate.hardware import Accelerator, Path, accelerator_named, link_classes
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric
from orchestrator.topology.links import Link

Group = tuple[tuple[int, int], ...]
"""Ranks of a group, by axis, inner to outer: distance between neighbours, and how many."""

UNNAMED = "an accelerator that orchestrator/estimate/hardware.yaml does not name"


@dataclass(frozen=True, slots=True)
class Hop:
    """A tier: how many accelerators a domain of it joins, and the path between two that share no nearer one."""

    tier: Tier
    size: int
    path: Path
    uplink: float | None = None
    """Bytes per second that all accelerators of a domain of the next nearer hop can send into this one together."""


@dataclass(frozen=True)
class Network:
    hops: tuple[Hop, ...]
    """Nearest first, sizes growing."""
    notes: tuple[str, ...] = ()
    """What was taken for granted, one sentence each."""

    @property
    def size(self) -> int:
        return self.hops[-1].size

    def hop(self, group: Group) -> int:
        """Index of the nearest hop whose domains hold the group's ranks."""
        ranks = prod(degree for _, degree in group)
        for index, hop in enumerate(self.hops):
            if together(group, hop.size) == ranks:
                return index
        return len(self.hops) - 1

    def path(self, group: Group) -> Path:
        """What a rank of the group has for a collective, all groups of the axis at once.

        The ranks of a group that share a nearer domain pass the wider tier side by side, each over its own NIC, as the
        rings of NCCL do; a step of the ring has the latency of the widest tier. What all of a domain send into a tier
        shares the uplink.
        """
        index = self.hop(group)
        found = self.hops[index]
        if index == 0:
            return found.path
        inner = self.hops[index - 1]
        abreast = together(group, inner.size)
        bandwidth = self.link(group).bandwidth * abreast
        if abreast > 1:
            bandwidth = min(bandwidth, inner.path.bandwidth)
        return replace(found.path, bandwidth=bandwidth, half_bytes=found.path.half_bytes * abreast)

    def link(self, group: Group) -> Path:
        """Path of a message between two ranks of the group that share no tier but the widest, all ranks at once."""
        index = self.hop(group)
        found = self.hops[index]
        if index == 0 or found.uplink is None:
            return found.path
        share = found.uplink / self.hops[index - 1].size
        return replace(found.path, bandwidth=min(found.path.bandwidth, share))


def together(group: Group, size: int) -> int:
    """Ranks of a group in one domain of `size` ranks, ranks dealt in order."""
    return prod(min(degree, max(1, size // stride)) for stride, degree in group)


def default_network(device: Accelerator, accelerators: int) -> Network:
    """Islands of the accelerator's usual size, each accelerator with the usual NIC on a switch without bottleneck."""
    classes = link_classes()
    hops = [Hop(Tier.ISLAND, min(device.island_size, accelerators), classes[device.island])]
    if accelerators > device.island_size:
        hops.append(Hop(Tier.ANY, accelerators, classes[device.network]))
    return Network(tuple(hops))


def network_of(fabric: Fabric, device: Accelerator) -> Network:
    """The network of a fabric. Links that it does not tell are those of hardware.yaml for its accelerators.

    Sizes are those of most domains of a tier; tiers that join no more than a nearer one are left out.
    """
    nodes = [node for node in fabric.nodes if node.accelerators]
    total = sum(node.accelerators for node in nodes)
    sizes = _sizes(fabric, device, total)
    hops: list[Hop] = []
    notes: list[str] = []
    for tier, size in sizes:
        if hops and size <= hops[-1].size:
            continue
        near = tier is Tier.ISLAND or (tier is Tier.NODE and Tier.ISLAND not in dict(sizes))
        link = fabric.links.get(tier)
        path, note = _path(link, tier, device, device.island if near else device.network)
        if note:
            notes.append(note)
        hops.append(Hop(tier, size, path, None if link is None else link.uplink))
    return Network(tuple(hops), tuple(notes))


def device_of(fabric: Fabric, asked: str | None = None) -> Accelerator | None:
    """The accelerator that the job asks for, or that most of those in use are; None when unknown."""
    if asked is not None:
        return accelerator_named(asked)
    counts = Counter[str]()
    for node in fabric.nodes:
        if node.accelerator and node.schedulable and node.alive:
            counts[node.accelerator] += node.accelerators
    return accelerator_named(counts.most_common(1)[0][0]) if counts else None


def _sizes(fabric: Fabric, device: Accelerator, total: int) -> list[tuple[Tier, int]]:
    """(tier, accelerators of most of its domains), nearest first; the last joins all."""
    found: list[tuple[Tier, int]] = []
    for tier in (Tier.ISLAND, Tier.NODE, *SWITCH_TIERS[1:]):
        counts = _domains(fabric, tier)
        if counts:
            found.append((tier, Counter(counts.values()).most_common(1)[0][0]))
    return [*sorted(found, key=lambda pair: pair[1]), (Tier.ANY, total)]


def _domains(fabric: Fabric, tier: Tier) -> Mapping[str, int]:
    counts = Counter[str]()
    for node in fabric.nodes:
        if tier is Tier.ISLAND and node.islands:
            counts.update(node.islands.values())
        elif tier is Tier.NODE:
            counts[node.name] = node.accelerators
        elif tier in node.domains:
            counts[node.domains[tier]] += node.accelerators
    return {name: count for name, count in counts.items() if count}


def _path(link: Link | None, tier: Tier, device: Accelerator, usual: str) -> tuple[Path, str | None]:
    """The path of a tier, and what was taken for granted. A declared bandwidth of a known class counts for the share
    that programs get of it; a measured one, or one without a class, counts as it is."""
    classes = link_classes()
    known = classes.get(link.kind) if link is not None and link.kind is not None else None
    base = known or classes[usual]
    if link is None or link.bandwidth is None:
        if known is not None:
            return known, None
        return base, f"{tier.value}: link unknown, taken as {usual}, usual for {device.name}"
    share = 1.0 if known is None or link.measured else known.achieved
    latency = base.latency_s if link.latency_s is None else link.latency_s
    return Path(link.bandwidth * share, latency, base.half_bytes, link.kind or "declared"), None
