"""Why a job does not fit: what is missing and where, nearest miss first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from orchestrator.placement.explain import counted, counted_domains, listed
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import CONTEXT_AXES, PIPELINE_AXES
from orchestrator.placement.packing import Level, Packer
from orchestrator.placement.placement import Refusal
from orchestrator.placement.pockets import UNKNOWN, PocketTable
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.names import natural_key

_DETAILS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Block:
    """What one domain has to hold."""

    noun: str
    """`pipeline`, `context block`, `tensor group`, `data group`, `job`."""
    tier: Tier
    size: int
    """Ranks."""
    count: int
    """Blocks in the job."""
    levels: tuple[Level, ...]
    """Levels that make one block; the last one is confined to `tier`."""


@dataclass(frozen=True, slots=True)
class _Miss:
    missing: int
    """Accelerators short of one more block."""
    domain: str
    fits: int
    sentence: str


def refuse(
    mesh: Mesh,
    required: dict[str, Tier],
    tables: Sequence[tuple[str | None, PocketTable]],
    *,
    ever: bool,
    cut_short: bool,
    away: Sequence[Node] = (),
    changes: tuple[str, ...] = (),
) -> Refusal:
    """The refusal for a job that fits none of `tables` (one per accelerator type: type, pockets). `away`: nodes that
    would serve it and take no work now."""
    free = sum(len(pocket.free) for _, table in tables for pocket in table.pockets)
    total = sum(pocket.total for _, table in tables for pocket in table.pockets)
    state = f"{free} of {counted(total, 'usable accelerator')} free, {mesh.size} needed"
    state += _partitioned([table for _, table in tables]) + _away(away)
    several = sum(1 for _, table in tables if table.pockets) > 1
    if several:
        state += "; a job does not mix accelerator types"
    for block in _blocks(mesh, required):
        by_type = [_misses(table, block, kind, several) for kind, table in tables]
        fits = max((sum(miss.fits for miss in misses) for misses in by_type), default=0)
        if fits >= block.count:
            continue
        notes = [note for _, table in tables for note in _unlabelled(table, block)]
        misses = sorted(chain(*by_type), key=lambda miss: (miss.missing, natural_key(miss.domain)))
        if not misses:
            return Refusal("; ".join([*notes, state]), tuple(notes), ever, changes)
        message = misses[0].sentence
        if block.count > 1:
            message += f"; {fits} of {counted(block.count, block.noun)} {'fits' if fits == 1 else 'fit'}"
        return Refusal(message, (*_shown(misses, block.tier), *notes, state), ever, changes)
    if cut_short:
        state += (
            "; the labels of the fabric cut across one another and the search for a placement was cut short"
        )
    return Refusal(state, (), ever, changes)


def _partitioned(tables: Sequence[PocketTable]) -> str:
    """`; 2 accelerators cut into parts (MIG) take no ranks (n1, n2)`; empty where there are none."""
    parts = {node: count for table in tables for node, count in table.partitioned.items()}
    if not parts:
        return ""
    total = sum(parts.values())
    take = "takes" if total == 1 else "take"
    return f"; {counted(total, 'accelerator')} cut into parts (MIG) {take} no ranks ({listed(list(parts))})"


def _away(nodes: Sequence[Node]) -> str:
    """`; lost: n1; cordoned: n2, n3`."""
    nodes = sorted(nodes, key=lambda node: natural_key(node.name))
    kinds = {
        "lost": [node.name for node in nodes if not node.alive],
        "cordoned": [node.name for node in nodes if node.alive],
    }
    return "".join(f"; {kind}: {listed(names)}" for kind, names in kinds.items() if names)


def no_such_accelerator(wanted: str, fabric: Fabric) -> Refusal:
    """No node has accelerators of the type the job asks for."""
    kinds = {node.accelerator for node in fabric.nodes if node.accelerators}
    known = sorted((kind for kind in kinds if kind is not None), key=natural_key)
    there = f"there are: {', '.join(known)}" if known else "no node names its type"
    return Refusal(f"no node has accelerators of type {wanted}; {there}", (), ever=False)


def _blocks(mesh: Mesh, required: dict[str, Tier]) -> Iterable[Block]:
    """What to look at, innermost requirement of the placement first; the first that does not fit is the reason."""

    def levels(*axes: str) -> tuple[Level, ...]:
        chosen = [axis for axis in axes if axis in mesh.axes and mesh.degree(axis) > 1]
        return tuple(Level(axis, mesh.degree(axis), required.get(axis)) for axis in chosen)

    def block(noun: str, tier: Tier, *axes: str) -> Block:
        found = levels(*axes)
        size = 1
        for level in found:
            size *= level.degree
        return Block(noun, tier, size, mesh.size // size, found)

    if "pp" in required:
        yield block("pipeline", required["pp"], *PIPELINE_AXES)
    elif "cp" in required:
        yield block("context block", required["cp"], *CONTEXT_AXES)
    elif "tp" in required:
        yield block("tensor group", required["tp"], "tp")
    if "dp" in required:
        if "pp" in required:
            yield block("job", required["dp"], *PIPELINE_AXES, "dp")
        elif "cp" in required:
            yield block("stage over all replicas", required["dp"], *CONTEXT_AXES, "dp")
        elif "tp" in required:
            yield block("stage over all replicas", required["dp"], "tp", "dp")
        else:
            yield block("data group", required["dp"], "dp")


def _misses(table: PocketTable, block: Block, kind: str | None, several: bool) -> list[_Miss]:
    """One a domain: what it holds and what it lacks for one more block."""
    packer = Packer(table, block.levels)
    outer = len(block.levels) - 1
    degree = block.levels[-1].degree
    unit = block.size // degree
    misses = []
    for group in table.groups(range(len(table.pockets)), block.tier):
        name = table.name(block.tier, group[0]) or ""
        free = packer.capacity(group, -1)
        units = packer.capacity(group, outer - 1)
        fits = units // degree
        short = (fits + 1) * block.size - free
        label = f"{block.tier} {name}" + (f" ({kind or 'type unknown'})" if several else "")
        if short <= 0:
            wanted = degree - units % degree
            sentence = (
                f"{label}: {free} free, {_fragmented(table, group, block, units - fits * degree, unit)}"
            )
            misses.append(_Miss(wanted, name, fits, sentence))
        elif fits == 0:
            misses.append(
                _Miss(short, name, fits, f"{label}: {free} free, {block.size} needed for one {block.noun}")
            )
        else:
            sentence = (
                f"{label}: {free} free hold {counted(fits, block.noun)}, {short} more needed for another"
            )
            misses.append(_Miss(short, name, fits, sentence))
    return misses


def _fragmented(table: PocketTable, group: Sequence[int], block: Block, units: int, unit: int) -> str:
    """Enough slots in the domain, but not together where the inner rule wants them."""
    inner = next((level for level in reversed(block.levels[:-1]) if level.tier is not None), None)
    if inner is None or inner.tier is None:
        return f"{block.size} needed for one {block.noun}"
    counts: dict[str, int] = {}
    for pocket in group:
        name = table.name(inner.tier, pocket) or "unknown"
        counts[name] = counts.get(name, 0) + len(table.pockets[pocket].free)
    names = sorted((name for name in counts if counts[name]), key=natural_key)
    there = listed([f"{name}: {counts[name]}" for name in names])
    return (
        f"but only {units} of the {block.size // unit} groups of {unit} that one {block.noun} needs fit in one "
        f"{inner.tier} each (free by {inner.tier}: {there})"
    )


def _unlabelled(table: PocketTable, block: Block) -> list[str]:
    """Free accelerators that serve nothing because a label is missing."""
    notes = []
    for tier in dict.fromkeys(level.tier for level in block.levels if level.tier is not None):
        lost = [i for i, p in enumerate(table.pockets) if p.free and table.numbers[tier][i] == UNKNOWN]
        if lost:
            free = sum(len(table.pockets[i].free) for i in lost)
            nodes = listed(list(dict.fromkeys(table.pockets[i].node for i in lost)))
            notes.append(
                f"{counted(free, 'free accelerator')} without a known {tier}, which never matches ({nodes})"
            )
    return notes


def _shown(misses: Sequence[_Miss], tier: Tier) -> list[str]:
    sentences = [miss.sentence for miss in misses[:_DETAILS_SHOWN]]
    more = len(misses) - len(sentences)
    return [*sentences, f"and {counted_domains(more, tier)} more, none nearer"] if more > 0 else sentences
