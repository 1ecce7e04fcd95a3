"""The placements that are compared: Atoll's, Ray's own, random ones, and the worst that is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from orchestrator.placement.demand import Workload, workload_of
from orchestrator.placement.given import cost_of
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Refusal
from orchestrator.placement.solver import solve
from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Fabric, Slot

WORST_TRIES = 400
"""Exchanges of two slots that are tried from each of three random placements."""


@dataclass(frozen=True, slots=True)
class Choice:
    name: str
    slots: tuple[Slot, ...]
    predicted_s: float
    """Communication of a step that nothing hides."""


class Chooser:
    def __init__(self, spec: JobSpec, fabric: Fabric, free: frozenset[Slot]) -> None:
        self._spec, self._fabric, self._free = spec, fabric, free
        self._mesh = Mesh.of(spec.parallelism)
        workload = workload_of(spec)
        assert workload is not None
        self._workload: Workload = workload

    def seconds(self, slots: Sequence[Slot]) -> float:
        return cost_of(self._mesh, self._workload, self._fabric, slots).exposed_s

    def choice(self, name: str, slots: Sequence[Slot]) -> Choice:
        return Choice(name, tuple(slots), self.seconds(slots))

    def atoll(self) -> Choice:
        found = solve(
            self._mesh,
            self._spec.placement,
            self._fabric,
            self._free,
            resources=self._spec.resources,
            workload=self._workload,
        )
        if isinstance(found, Refusal):
            raise RuntimeError(found.message)
        return self.choice("atoll", found.slots)

    def ray(self, strategy: str, number: int) -> Choice:
        """Where Ray puts the bundles of a placement group of one slot each."""
        return self.choice(f"{strategy.lower()} {number}", slots_of_group(strategy, self._mesh.size))

    def random(self, seed: int) -> Choice:
        slots = Random(seed).sample(sorted(self._free), self._mesh.size)
        return self.choice(f"random {seed}", slots)

    def worst(self) -> Choice:
        """The dearest that exchanging slots leads to."""
        random, every = Random(0), sorted(self._free)
        best: tuple[float, list[Slot]] = (0.0, [])
        for _ in range(3):
            order = random.sample(every, len(every))
            now = self.seconds(order[: self._mesh.size])
            for _ in range(WORST_TRIES):
                a, b = random.randrange(self._mesh.size), random.randrange(len(order))
                order[a], order[b] = order[b], order[a]
                if (cost := self.seconds(order[: self._mesh.size])) >= now:
                    now = cost
                else:
                    order[a], order[b] = order[b], order[a]
            best = max(best, (now, order[: self._mesh.size]))
        return self.choice("worst", best[1])


def slots_of_group(strategy: str, ranks: int) -> list[Slot]:
    """The slots of the bundles of a Ray placement group, in their order; the group is given back."""
    import ray
    from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

    from actors import ray_nodes

    group: Any = placement_group([{"slot": 1}] * ranks, strategy=strategy)
    try:
        ray.get(group.ready(), timeout=60)
        table = placement_group_table(group)["bundles_to_node_id"]
    finally:
        remove_placement_group(group)
    host = {node["NodeID"]: ray_nodes.host_of(node) for node in ray_nodes.nodes()}
    taken: dict[str, int] = {}
    slots = []
    for bundle in range(ranks):
        name = host[table[bundle]]
        slots.append(Slot(name, taken.setdefault(name, 0)))
        taken[name] += 1
    return slots
