"""The certificate: proof, from what the ranks report before step 0, that every group meets its tier.

Made only from the order (slots, rules) and from what the ranks say of themselves: their node, accelerator and the
labels of the node their process runs under. Nothing the solver computed is taken for true. The fabric of the order
adds only what labels cannot say: islands smaller than a node, and tiers declared in a fabric file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.lifecycle.reports import RankFacts
from orchestrator.placement.explain import axis_sentence, counted, listed
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import KNOWN_TIERS, axis_outcomes
from orchestrator.placement.placement import AxisOutcome
from orchestrator.placement.report import axis_report
from orchestrator.placement.seating import numbered
from orchestrator.spec.sections import PlacementSpec, Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Slot


@dataclass(frozen=True, slots=True)
class Certificate:
    ok: bool
    axes: tuple[AxisOutcome, ...]
    """Outcome per axis with more than one rank, from the reported places; empty when ranks are missing or doubled."""
    violations: tuple[str, ...] = ()
    """Sentences; empty when ok."""

    def as_json(self) -> dict[str, Any]:
        """JSON-compatible values: {ok, axes: [{axis, asked, mode, groups, widest, outside}], violations}."""
        axes = [axis_report(outcome) for outcome in self.axes]
        return {"ok": self.ok, "axes": axes, "violations": list(self.violations)}


def certify(
    placement_slots: Sequence[Slot],
    mesh: Mesh,
    rules: PlacementSpec,
    fabric: Fabric,
    facts: Sequence[RankFacts],
) -> Certificate:
    """Compares the reports with the order. `ok` only if every rank reported once, from its own slot, as its own
    process on its own device, and every required axis is inside its tier by the reported labels."""
    if len(placement_slots) != mesh.size:
        raise ValueError(f"{len(placement_slots)} slots for a mesh of {mesh.size} ranks")
    violations = [
        *_attendance(mesh.size, facts),
        *_places(placement_slots, facts),
        *_doubles(facts),
    ]
    axes: tuple[AxisOutcome, ...] = ()
    by_rank = {fact.rank: fact for fact in facts}
    if set(by_rank) == set(range(mesh.size)) and len(facts) == mesh.size:
        domains = numbered(mesh.size, KNOWN_TIERS, lambda rank, tier: _domain(by_rank[rank], tier, fabric))
        axes = axis_outcomes(mesh, rules, domains)
        outside = [axis_sentence(axis) for axis in axes if axis.mode == "required" and axis.outside]
        violations += [*outside, *_relabelled(fabric, facts)] if outside else []
    return Certificate(not violations, axes, tuple(violations))


def _attendance(size: int, facts: Sequence[RankFacts]) -> Iterable[str]:
    """Every rank once, and no other."""
    seen: defaultdict[int, int] = defaultdict(int)
    for fact in facts:
        seen[fact.rank] += 1
    missing = [str(rank) for rank in range(size) if rank not in seen]
    if missing:
        yield f"{counted(len(missing), 'rank')} did not report: {listed(missing)}"
    for rank in sorted(seen):
        if not 0 <= rank < size:
            yield f"rank {rank} reported, but the job has ranks 0 to {size - 1}"
        elif seen[rank] > 1:
            yield f"rank {rank} reported {seen[rank]} times"


def _places(slots: Sequence[Slot], facts: Sequence[RankFacts]) -> Iterable[str]:
    """Every rank on the node and accelerator it was ordered to, by its own word and by the label of its node."""
    for fact in facts:
        if not 0 <= fact.rank < len(slots):
            continue
        slot = slots[fact.rank]
        if fact.node != slot.node:
            yield f"rank {fact.rank} runs on node {fact.node}, its place is on {slot.node}"
        elif fact.index != slot.index:
            yield f"rank {fact.rank} uses accelerator {fact.index} of node {fact.node}, its place is {slot.index}"
        host = fact.labels.get("host")
        if host is not None and host != fact.node:
            yield f"rank {fact.rank} says it runs on node {fact.node}, but its node carries the label host={host}"


def _doubles(facts: Sequence[RankFacts]) -> Iterable[str]:
    """No two ranks in one process, on one accelerator or on one device. `cpu` is no device of its own."""
    keys: tuple[tuple[str, Any], ...] = (
        ("process {0[1]} of node {0[0]}", lambda fact: (fact.node, fact.pid)),
        ("accelerator {0[1]} of node {0[0]}", lambda fact: (fact.node, fact.index)),
        ("device {0[0]}", lambda fact: None if fact.device == "cpu" else (fact.device,)),
    )
    for what, key in keys:
        ranks: defaultdict[Hashable, set[int]] = defaultdict(set)
        for fact in facts:
            if (value := key(fact)) is not None:
                ranks[value].add(fact.rank)
        for value, found in ranks.items():
            if len(found) > 1:
                yield f"ranks {listed([str(rank) for rank in sorted(found)])} share {what.format(value)}"


def _relabelled(fabric: Fabric, facts: Sequence[RankFacts]) -> Iterable[str]:
    """Why a group may be outside its tier: nodes whose labels are no longer those they were placed by."""
    for name, labels in {fact.node: fact.labels for fact in facts}.items():
        node = fabric.node(name)
        for tier in SWITCH_TIERS if node is not None else ():
            placed_by = node.domains.get(tier) if node is not None else None
            reported = labels.get(tier.value)
            if placed_by is not None and reported and reported != placed_by:
                yield f"node {name} reports {tier} {reported}, it was placed as {tier} {placed_by}"


def _domain(fact: RankFacts, tier: Tier, fabric: Fabric) -> str | None:
    """Domain of a rank by what it reports: its place in the fabric where islands are smaller than the node."""
    if tier is Tier.NODE:
        return fact.node
    node = fabric.node(fact.node)
    if tier is Tier.ISLAND and node is not None and fact.index in node.islands:
        return node.islands[fact.index]
    return fact.labels.get(tier.value) or (fabric.domain(Slot(fact.node, fact.index), tier) if node else None)
