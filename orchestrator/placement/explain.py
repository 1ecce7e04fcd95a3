"""Sentences about a placement: what each axis spans and where the pipelines went; and the short label of a plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.placement.cost_sentences import cost_sentences
from orchestrator.placement.mapping import Mapped
from orchestrator.placement.mesh import AXES, Mesh
from orchestrator.placement.outcome import PIPELINE_AXES
from orchestrator.placement.placement import AxisOutcome
from orchestrator.placement.pockets import UNKNOWN
from orchestrator.placement.seating import Seating
from orchestrator.placement.strong import weak_sentences
from orchestrator.spec.sections import ParallelismSpec, Tier

_NAMES_SHOWN = 8
_PLURAL = {Tier.LEAF: "leaves"}
_INSIDE = {Tier.ISLAND: "inside", Tier.NODE: "on"}


def plan_label(parallelism: ParallelismSpec) -> str:
    """Degrees above one, inner to outer, then what takes no ranks: `tp2 pp2 dp2 ep2 zero1`; `single` for one rank."""
    degrees = [f"{axis}{n}" for axis in (*AXES, "ep") if (n := getattr(parallelism, axis)) > 1]
    if parallelism.zero:
        degrees.append(f"zero{parallelism.zero}")
    return " ".join(degrees) or "single"


def explain(mesh: Mesh, seating: Seating, found: Mapped) -> tuple[str, ...]:
    """Why this placement meets its rules, by how much a preference was missed, and what it costs."""
    return (
        _where(seating),
        *(axis_sentence(outcome) for outcome in found.best.outcomes),
        *_pipelines(mesh, seating),
        *_shared_islands(seating),
        *weak_sentences(mesh, seating),
        *cost_sentences(found),
    )


def axis_sentence(outcome: AxisOutcome) -> str:
    """`tp: all 4 groups inside one island each (required)`."""
    asked, groups = outcome.asked, counted(outcome.groups, "group")
    if asked is Tier.ANY:
        return f"{outcome.axis}: {groups}, anywhere; {_widest(outcome.widest)}"
    place = f"{_INSIDE.get(asked, 'under')} one {asked}"
    if outcome.outside == 0:
        which = f"all {groups} {place} each" if outcome.groups > 1 else f"its group {place}"
        return f"{outcome.axis}: {which} ({outcome.mode})"
    return f"{outcome.axis}: {outcome.outside} of {groups} not {place} ({outcome.mode}); {_widest(outcome.widest)}"


def counted(count: int, noun: str) -> str:
    """`1 group`, `2 groups`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def counted_domains(count: int, tier: Tier) -> str:
    """`1 leaf`, `2 leaves`."""
    return f"{count} {tier}" if count == 1 else f"{count} {_PLURAL.get(tier, f'{tier}s')}"


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"


def _widest(tier: Tier) -> str:
    return "the widest shares no known domain" if tier is Tier.ANY else f"the widest shares one {tier}"


def _where(seating: Seating) -> str:
    """How many nodes and switch domains the job touches."""
    parts = []
    for tier in (Tier.NODE, Tier.LEAF, Tier.SPINE):
        found = np.unique(seating.domains[tier]).tolist()
        if found[0] != UNKNOWN:
            names = [seating.table.names[tier][number] for number in found]
            parts.append(f"{counted_domains(len(names), tier)} ({listed(names)})")
    return f"{counted(len(seating.pocket), 'rank')} on " + ", ".join(parts)


def _pipelines(mesh: Mesh, seating: Seating) -> list[str]:
    """Which leaf holds which pipelines, when there is more than one of each and all leaves are known."""
    leaves = seating.domains[Tier.LEAF][mesh.members(PIPELINE_AXES)]
    if len(leaves) < 2 or (leaves != leaves[:, :1]).any() or (leaves == UNKNOWN).any():
        return []
    held: dict[int, list[str]] = {}
    for number, leaf in enumerate(leaves[:, 0].tolist()):
        held.setdefault(leaf, []).append(str(number))
    sentences = [
        f"leaf {seating.table.names[Tier.LEAF][leaf]}: "
        f"{'replica' if len(held[leaf]) == 1 else 'replicas'} {listed(held[leaf])}"
        for leaf in sorted(held)
    ]
    more = len(sentences) - _NAMES_SHOWN
    return (
        sentences
        if more <= 0
        else [*sentences[:_NAMES_SHOWN], f"and {counted_domains(more, Tier.LEAF)} more"]
    )


def _shared_islands(seating: Seating) -> list[str]:
    """Islands over several nodes that other jobs use too: they share its switches."""
    table = seating.table
    if table.locality[-1] is Tier.ISLAND:
        return []
    islands = table.arrays[Tier.ISLAND]
    free = np.array([len(pocket.free) for pocket in table.pockets])
    total = np.array([pocket.total for pocket in table.pockets])
    nodes = table.arrays[Tier.NODE]
    sentences = []
    for island in np.unique(seating.domains[Tier.ISLAND]).tolist():
        there = islands == island
        whole, taken = int(total[there].sum()), int((total - free)[there].sum())
        span = len(np.unique(nodes[there]))
        if island != UNKNOWN and span > 1 and taken:
            sentences.append(
                f"island {table.names[Tier.ISLAND][island]} over {span} nodes is shared with other jobs: "
                f"{taken} of its {whole} accelerators are taken"
            )
    more = len(sentences) - _NAMES_SHOWN
    return (
        sentences
        if more <= 0
        else [*sentences[:_NAMES_SHOWN], f"and {counted_domains(more, Tier.ISLAND)} more"]
    )
