"""Where every rank goes: all or nothing, or a refusal that says what is missing.

The rule of `tp` keeps every tensor group, that of `cp` every context block (a context group with its tensor ranks),
that of `ep` every expert group, that of `pp` every whole pipeline, that of `dp` every data group inside one domain of
its tier. Complete: whenever slots that keep every required rule exist, some are found (by counting; by a bounded search
where counting is not exact, `search`). Preferences come next: fewest groups outside their tier, then the nearest tier,
for tp, then cp, ep, pp and dp. Then the cost of a step's communication (`cost`), where the job's traffic is known.
Nodes whose place is not known, and those under suspicion, are used only by a job that does not fit without them.
Deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from orchestrator.placement.change import smallest_change
from orchestrator.placement.cost import Pricing
from orchestrator.placement.demand import Workload
from orchestrator.placement.explain import explain
from orchestrator.placement.feasible import fits, packed, required_tiers
from orchestrator.placement.found import Judge
from orchestrator.placement.improve import improved
from orchestrator.placement.mapping import Mapped, mapped
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.rails import aligned
from orchestrator.placement.refusal import no_such_accelerator, refuse
from orchestrator.placement.room import fed_slots, short_of_cpus
from orchestrator.placement.search import SearchCutShortError
from orchestrator.placement.strong import strengthened
from orchestrator.placement.tariff import tariff_of
from orchestrator.spec.sections import PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import SWITCH_TIERS, Fabric, Node, Slot
from orchestrator.topology.names import natural_key


def solve(
    mesh: Mesh,
    rules: PlacementSpec,
    fabric: Fabric,
    free: AbstractSet[Slot],
    *,
    resources: ResourcesSpec,
    cpus: Mapping[str, float] | None = None,
    workload: Workload | None = None,
    suspect: AbstractSet[str] = frozenset(),
) -> Placement | Refusal:
    """Slots of every rank out of `free`, or why there are none.

    Dead and unschedulable nodes are never used, suspect ones (those that `suspect` names, and those so marked) only if
    need be; one job never mixes accelerator types (an unknown type counts as one of its own) unless `resources` says
    so. `cpus` are free CPUs by node, for a job that reserves some for each rank; a node without a number has enough.
    Without a `workload` axes nest in the default order. `Refusal.ever` is False when the job would not fit either if
    every accelerator and CPU of every node of `fabric`, dead and cordoned ones included, were free.
    """
    question = _Question(mesh, rules, fabric, resources, workload, suspect)
    per_rank, cpus = resources.cpus_per_rank, cpus or {}
    if per_rank <= 0:
        return question.answer(free)

    def fed(slots: AbstractSet[Slot], cpus: Mapping[str, float]) -> frozenset[Slot]:
        return fed_slots(fabric, slots, cpus, per_rank=per_rank, group=mesh.degree("tp"))

    answer = question.answer(fed(free, cpus))
    if isinstance(answer, Refusal):
        answer = question.answer(free)
        if isinstance(answer, Refusal):
            return answer  # it is not the CPUs that are missing
        if short := short_of_cpus(fabric, answer, cpus, per_rank=per_rank):
            totals = {node.name: node.cpus for node in fabric.nodes if node.cpus is not None}
            return Refusal(short[0], short, question.ever(fed(_whole(fabric).slots(), totals)))
    return replace(answer, cpus_per_rank=per_rank)


Usable = Callable[[Node], bool]


@dataclass(frozen=True, slots=True)
class _Question:
    mesh: Mesh
    rules: PlacementSpec
    fabric: Fabric
    resources: ResourcesSpec
    workload: Workload | None
    suspect: AbstractSet[str]

    def answer(self, free: AbstractSet[Slot]) -> Placement | Refusal:
        """The answer without a thought of CPUs."""
        kinds = self._kinds()
        wanted = self.resources.accelerator
        if wanted is not None and not any(node.accelerator == wanted for node in self.fabric.nodes):
            return no_such_accelerator(wanted, self.fabric)
        cut_short = False
        tables: list[tuple[str | None, PocketTable]] = []
        for willing in self._pools():
            tables = [(kind, self._table(kind, free, willing)) for kind in kinds]
            best: Mapped | None = None
            for kind, table in tables:
                try:
                    found = self._mapped(kind, table)
                except SearchCutShortError:
                    cut_short, found = True, None
                if found is not None and (best is None or found.best.better_than(best.best)):
                    best = found
            if best is not None:
                return self._placement(best)
        return refuse(
            self.mesh,
            required_tiers(self.mesh, self.rules),
            tables,
            ever=self.ever(_whole(self.fabric).slots()),
            cut_short=cut_short,
            away=self._away(),
            changes=smallest_change(self.mesh, self.rules, [table for _, table in tables]),
        )

    def _placement(self, found: Mapped) -> Placement:
        best = found.best
        seating = strengthened(self.mesh, aligned(self.mesh, best.seating))
        return Placement(seating.slots(), best.outcomes, explain(self.mesh, seating, found), cost=best.cost)

    def _mapped(self, kind: str | None, table: PocketTable) -> Mapped | None:
        """The best placement among the accelerators of one type."""
        judge = Judge(self.mesh, self.rules, table, self._pricing(kind, table))
        base = packed(judge)
        if base is None:
            return None
        shards = 1 if self.workload is None else self.workload.parallelism.shards
        return improved(judge, mapped(judge, base, shards))

    def _pricing(self, kind: str | None, table: PocketTable) -> Pricing | None:
        if self.workload is None or not self.workload.demands:
            return None
        tariff = tariff_of(self.fabric.links, tuple(reversed(table.locality)))
        return Pricing(self.mesh, self.workload.on(kind), tariff, self.workload.hidden_s(kind))

    def _kinds(self) -> list[str | None]:
        """Accelerator types to try, in natural order, unknown last; one entry when they may be mixed."""
        if self.resources.accelerator is not None:
            return [self.resources.accelerator]
        kinds = {node.accelerator for node in self.fabric.nodes if node.accelerators}
        ordered = sorted(kinds, key=lambda kind: (kind is None, natural_key(kind or "")))
        return ordered[:1] if self._mixes else ordered

    @property
    def _mixes(self) -> bool:
        return self.resources.mix_accelerators and self.resources.accelerator is None

    def _pools(self) -> Iterator[Usable]:
        """Nodes to use, ever more of them: those whose place is known; all but suspect ones; all."""
        living = [node for node in self.fabric.nodes if node.alive and node.schedulable and node.accelerators]
        known = {tier for tier in SWITCH_TIERS if any(_label_known(node, tier) for node in living)}

        def placed(node: Node) -> bool:
            return all(_label_known(node, tier) for tier in known)

        def trusted(node: Node) -> bool:
            return not node.suspect and node.name not in self.suspect

        sizes = set()
        for pool in (lambda node: trusted(node) and placed(node), trusted, lambda node: True):
            if (size := sum(map(pool, living))) not in sizes:
                sizes.add(size)
                yield pool

    def _table(self, kind: str | None, free: AbstractSet[Slot], willing: Usable) -> PocketTable:
        ours = self._of_kind(kind)
        return PocketTable(
            self.fabric, free, lambda node: ours(node) and node.alive and node.schedulable and willing(node)
        )

    def _of_kind(self, kind: str | None) -> Usable:
        return lambda node: self._mixes or node.accelerator == kind

    def _away(self) -> list[Node]:
        """Nodes that take no work now, of a type that the job takes. Ray forgets the type and size of a dead one."""
        kinds = {kind for kind in self._kinds() if kind is not None}
        return [
            node
            for node in self.fabric.nodes
            if not (node.alive and node.schedulable)
            and (node.accelerators or not node.alive)
            and (self._mixes or node.accelerator is None or node.accelerator in kinds)
        ]

    def ever(self, slots: AbstractSet[Slot]) -> bool:
        """Whether the job fits on the fabric when all `slots` are free; True when the search gave up: not known to be
        impossible."""
        fabric = _whole(self.fabric)
        for kind in self._kinds():
            table = PocketTable(fabric, slots, self._of_kind(kind))
            try:
                if fits(self.mesh, self.rules, table):
                    return True
            except SearchCutShortError:
                return True
        return False


def _label_known(node: Node, tier: Tier) -> bool:
    if tier in node.domains:
        return True
    return tier is Tier.ISLAND and len(node.islands) >= node.accelerators > 0


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
