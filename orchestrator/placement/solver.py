"""Where every rank goes: all or nothing, or a refusal that says what is missing.

The rule of `tp` keeps every tensor group, that of `cp` every context block (a context group with its tensor ranks),
that of `pp` every whole pipeline, that of `dp` every data group inside one domain of its tier. Complete: whenever slots
that keep every required rule exist, some are found (by counting; by a bounded search for labels that cut across one
another, `search`). Preferences come after: fewest groups outside their tier, then the nearest tier, for tp, then cp, pp
and dp. Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import product

from orchestrator.placement.explain import explain
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.outcome import TIERS, axis_outcomes, ruled_axes
from orchestrator.placement.packing import Level, Packer
from orchestrator.placement.placement import AxisOutcome, Placement, Refusal
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.refusal import no_such_accelerator, refuse
from orchestrator.placement.room import fed_slots, short_of_cpus
from orchestrator.placement.search import SearchCutShortError, crossing, search
from orchestrator.spec.sections import PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.names import natural_key

_NESTINGS: tuple[tuple[str, ...], ...] = (
    ("tp", "cp", "pp", "dp"),
    ("tp", "cp", "dp", "pp"),
    ("tp", "dp", "cp", "pp"),
    ("dp", "tp", "cp", "pp"),
)
"""Orders in which blocks may nest, inner to outer. Rules that nest at all nest in one of these: an outer block needs
the wider tier. The first is the usual one; the others serve `dp` confined more narrowly than `pp`, `cp` or `tp`."""


def solve(
    mesh: Mesh,
    rules: PlacementSpec,
    fabric: Fabric,
    free: AbstractSet[Slot],
    *,
    resources: ResourcesSpec,
    cpus: Mapping[str, float] | None = None,
) -> Placement | Refusal:
    """Slots of every rank out of `free`, or why there are none.

    Dead and unschedulable nodes are never used, and one job never mixes accelerator types (an unknown type counts as
    one of its own). `cpus` are free CPUs by node, for a job that reserves some for each rank; a node without a number
    has enough. `Refusal.ever` is False when the job would not fit either if every accelerator and CPU of every node of
    `fabric`, dead and cordoned ones included, were free.
    """
    per_rank, cpus = resources.cpus_per_rank, cpus or {}
    if per_rank <= 0:
        return _solve(mesh, rules, fabric, free, resources)

    def fed(slots: AbstractSet[Slot], cpus: Mapping[str, float]) -> frozenset[Slot]:
        return fed_slots(fabric, slots, cpus, per_rank=per_rank, group=mesh.degree("tp"))

    answer = _solve(mesh, rules, fabric, fed(free, cpus), resources)
    if isinstance(answer, Refusal):
        answer = _solve(mesh, rules, fabric, free, resources)
        if isinstance(answer, Refusal):
            return answer  # it is not the CPUs that are missing
        if short := short_of_cpus(fabric, answer, cpus, per_rank=per_rank):
            totals = {node.name: node.cpus for node in fabric.nodes if node.cpus is not None}
            slots = fed(_whole(fabric).slots(), totals)
            return Refusal(short[0], short, _ever(mesh, rules, fabric, slots, _kinds(fabric, resources)))
    return replace(answer, cpus_per_rank=per_rank)


def _solve(
    mesh: Mesh, rules: PlacementSpec, fabric: Fabric, free: AbstractSet[Slot], resources: ResourcesSpec
) -> Placement | Refusal:
    """The answer without a thought of CPUs."""
    kinds = _kinds(fabric, resources)
    if resources.accelerator is not None and not any(
        _usable(k, dead_too=True)(n) for k in kinds for n in fabric.nodes
    ):
        return no_such_accelerator(resources.accelerator, fabric)
    tables = [(kind, PocketTable(fabric, free, _usable(kind))) for kind in kinds]
    cut_short = False
    best: _Found | None = None
    for _, table in tables:
        try:
            found = _best(mesh, rules, table, fabric)
        except SearchCutShortError:
            cut_short, found = True, None
        if found is not None and (best is None or found.score < best.score):
            best = found
    if best is None:
        ever = _ever(mesh, rules, fabric, _whole(fabric).slots(), kinds)
        return refuse(mesh, _required(mesh, rules), tables, ever=ever, cut_short=cut_short)
    return Placement(best.slots, best.outcomes, explain(mesh, best.slots, best.outcomes, fabric))


@dataclass(frozen=True, slots=True)
class _Found:
    score: tuple[int, ...]
    slots: tuple[Slot, ...]
    outcomes: tuple[AxisOutcome, ...]

    @property
    def perfect(self) -> bool:
        """No group outside its tier."""
        return not any(outcome.outside for outcome in self.outcomes)


def _kinds(fabric: Fabric, resources: ResourcesSpec) -> list[str | None]:
    """Accelerator types to try, in natural order, unknown last."""
    if resources.accelerator is not None:
        return [resources.accelerator]
    kinds = {node.accelerator for node in fabric.nodes if node.accelerators}
    return sorted(kinds, key=lambda kind: (kind is None, natural_key(kind or "")))


def _usable(kind: str | None, *, dead_too: bool = False) -> Callable[[Node], bool]:
    return lambda node: node.accelerator == kind and (dead_too or (node.alive and node.schedulable))


def _best(mesh: Mesh, rules: PlacementSpec, table: PocketTable, fabric: Fabric) -> _Found | None:
    """The best placement among all nestings and degradations."""
    best: _Found | None = None
    for axes, levels in _attempts(mesh, rules):
        packed = Packer(table, levels).pack()
        if packed is None:
            continue
        found = _judged(mesh, rules, fabric, _by_rank(mesh, axes, packed))
        if best is None or found.score < best.score:
            best = found
        if best.perfect:
            return best
    if best is None and (searched := _search(mesh, rules, table)) is not None:
        best = _judged(mesh, rules, fabric, searched)
    return best


def _judged(mesh: Mesh, rules: PlacementSpec, fabric: Fabric, slots: Sequence[Slot]) -> _Found:
    """Score of a placement, lower is better: groups outside and how wide they are, tp before cp before pp before dp."""
    outcomes = axis_outcomes(mesh, rules, lambda rank, tier: fabric.domain(slots[rank], tier))
    score = tuple(value for o in outcomes for value in (o.outside, TIERS.index(o.widest) if o.outside else 0))
    return _Found(score, tuple(slots), outcomes)


def _attempts(mesh: Mesh, rules: PlacementSpec) -> Iterator[tuple[tuple[str, ...], list[Level]]]:
    """Nestings to try. A preferred `dp` is tried as if required, at its tier and then at ever wider ones."""
    binding = ruled_axes(mesh, rules)
    dp_tiers: Sequence[Tier | None] = (None,)
    if (dp := binding.get("dp")) is not None and dp.tier is not Tier.ANY:
        wider = TIERS[TIERS.index(dp.tier) : -1]
        dp_tiers = (dp.tier,) if dp.mode == "required" else (*wider, None)
    for dp_tier, axes in product(dp_tiers, _nestings(mesh)):
        levels = []
        for axis in axes:
            rule = binding.get(axis)
            if axis == "dp":
                level = Level(axis, mesh.degree(axis), dp_tier)
            elif rule is None or rule.tier is Tier.ANY:
                level = Level(axis, mesh.degree(axis), None)
            else:
                level = Level(axis, mesh.degree(axis), rule.tier, soft=rule.mode == "preferred")
            if level.degree > 1 or axis == axes[-1]:
                levels.append(level)
        yield axes, levels


def _nestings(mesh: Mesh) -> list[tuple[str, ...]]:
    """Orders of the mesh's axes; of those that differ in axes of one rank alone, the first."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for nesting in _NESTINGS:
        axes = tuple(axis for axis in nesting if axis in mesh.axes)
        axes += tuple(axis for axis in mesh.axes if axis not in axes)
        found.setdefault(tuple(axis for axis in axes if mesh.degree(axis) > 1), axes)
    return list(found.values())


def _by_rank(mesh: Mesh, axes: Sequence[str], packed: Sequence[Slot]) -> list[Slot]:
    """Packed slots (first of `axes` fastest) in order of ranks."""
    if tuple(axes) == mesh.axes:
        return list(packed)
    nest = Mesh(tuple(mesh.degree(axis) for axis in axes), tuple(axes))
    return [packed[nest.rank(mesh.coordinates(rank))] for rank in range(mesh.size)]


def _required(mesh: Mesh, rules: PlacementSpec) -> dict[str, Tier]:
    binding = ruled_axes(mesh, rules).items()
    return {
        axis: rule.tier for axis, rule in binding if rule.mode == "required" and rule.tier is not Tier.ANY
    }


def _search(mesh: Mesh, rules: PlacementSpec, table: PocketTable) -> list[Slot] | None:
    """Exact search where counting is not exact: `dp` required and labels that cut across one another."""
    required = _required(mesh, rules)
    if "dp" not in required or not crossing(table, list(required.values())):
        return None
    return search(table, mesh, required)


def _ever(
    mesh: Mesh,
    rules: PlacementSpec,
    fabric: Fabric,
    slots: AbstractSet[Slot],
    kinds: Sequence[str | None],
) -> bool:
    """Whether the job fits on the fabric when all `slots` are free; True when the search gave up: not known to be
    impossible."""
    fabric = _whole(fabric)
    for kind in kinds:
        table = PocketTable(fabric, slots, _usable(kind, dead_too=True))
        everything = range(len(table.pockets))
        for _, levels in _attempts(mesh, rules):
            if Packer(table, levels).capacity(everything, len(levels) - 1) >= 1:
                return True
        try:
            if _search(mesh, rules, table) is not None:
                return True
        except SearchCutShortError:
            return True
    return False


def _whole(fabric: Fabric) -> Fabric:
    """The fabric with dead nodes as they were. Ray forgets the size of a dead node (0 then): it counts as large as the
    largest node of its type."""
    largest: dict[str | None, int] = {}
    for node in fabric.nodes:
        largest[node.accelerator] = max(largest.get(node.accelerator, 0), node.accelerators)
    return Fabric(
        tuple(
            node if node.alive or node.accelerators else replace(node, accelerators=largest[node.accelerator])
            for node in fabric.nodes
        )
    )
