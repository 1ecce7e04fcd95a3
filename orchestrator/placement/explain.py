"""Sentences about a placement: what each axis spans and where the pipelines went; and the short label of a plan."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.placement.mesh import AXES, Mesh
from orchestrator.placement.outcome import PIPELINE_AXES
from orchestrator.placement.placement import AxisOutcome
from orchestrator.spec.sections import ParallelismSpec, Tier
from orchestrator.topology.fabric import Fabric, Slot
from orchestrator.topology.names import natural_key

_NAMES_SHOWN = 8
_PLURAL = {Tier.LEAF: "leaves"}
_INSIDE = {Tier.ISLAND: "inside", Tier.NODE: "on"}


def plan_label(parallelism: ParallelismSpec) -> str:
    """Degrees above one, inner to outer, then what takes no ranks: `tp2 pp2 dp2 ep2 zero1`; `single` for one rank."""
    degrees = [f"{axis}{n}" for axis in (*AXES, "ep") if (n := getattr(parallelism, axis)) > 1]
    if parallelism.zero:
        degrees.append(f"zero{parallelism.zero}")
    return " ".join(degrees) or "single"


def explain(
    mesh: Mesh, slots: Sequence[Slot], outcomes: Sequence[AxisOutcome], fabric: Fabric
) -> tuple[str, ...]:
    """Why this placement meets its rules, and by how much a preference was missed."""
    return (
        _where(slots, fabric),
        *(axis_sentence(outcome) for outcome in outcomes),
        *_pipelines(mesh, slots, fabric),
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


def _where(slots: Sequence[Slot], fabric: Fabric) -> str:
    """How many nodes and switch domains the job touches."""
    parts = []
    for tier in (Tier.NODE, Tier.LEAF, Tier.SPINE):
        found = {fabric.domain(slot, tier) for slot in slots}
        if None not in found:
            names = sorted((name for name in found if name is not None), key=natural_key)
            parts.append(f"{counted_domains(len(names), tier)} ({listed(names)})")
    return f"{counted(len(slots), 'rank')} on " + ", ".join(parts)


def _pipelines(mesh: Mesh, slots: Sequence[Slot], fabric: Fabric) -> list[str]:
    """Which leaf holds which pipelines, when there is more than one of each and all leaves are known."""
    pipelines = mesh.blocks(PIPELINE_AXES)
    held: dict[str, list[str]] = {}
    for number, ranks in enumerate(pipelines):
        leaves = {fabric.domain(slots[rank], Tier.LEAF) for rank in ranks}
        leaf = leaves.pop()
        if leaves or leaf is None:
            return []
        held.setdefault(leaf, []).append(str(number))
    if len(pipelines) < 2:
        return []
    names = sorted(held, key=natural_key)
    noun = {leaf: "replica" if len(replicas) == 1 else "replicas" for leaf, replicas in held.items()}
    sentences = [f"leaf {leaf}: {noun[leaf]} {listed(held[leaf])}" for leaf in names]
    more = len(sentences) - _NAMES_SHOWN
    return (
        sentences
        if more <= 0
        else [*sentences[:_NAMES_SHOWN], f"and {counted_domains(more, Tier.LEAF)} more"]
    )
