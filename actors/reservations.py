"""What a gang holds of Ray: one placement group a node, with the unit resource of each of its slots there.

One a node and not one a gang, so that a lost node is given back while the others stay: the bundle of a lost node would
be made again when a node of that name joins, and keep slots that the store has given to somebody else. That a gang
starts whole or not at all is the store's promise; Ray's reservations follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from actors import naming
from orchestrator.lifecycle.ports import GangRef
from orchestrator.topology.fabric import Slot


class NodeTooSmallError(RuntimeError):
    """A node that is otherwise free has not what the job asks of it, and never will."""


class Reservations:
    """Every method but `group` asks Ray's head and may hang as long as it does: call in a thread."""

    def __init__(self, gang: GangRef, cpus_per_rank: float) -> None:
        self._gang = gang
        self._cpus = cpus_per_rank
        self._groups: dict[str, PlacementGroup] = {}
        self._taken: dict[str, int] = {}
        """Reservations made so far by node: no name is used twice."""

    def take(
        self, nodes: Iterable[str], slots: Sequence[Slot], resources: Mapping[str, Mapping[str, float]]
    ) -> None:
        """Reserves the slots among `slots` of each of `nodes`, pinned by the host label. `resources` of living nodes.

        NodeTooSmallError, with nothing reserved.
        """
        bundles = {node: self._bundle(node, slots, resources.get(node, {})) for node in nodes}
        for node, bundle in bundles.items():
            number = self._taken.get(node, 0)
            self._taken[node] = number + 1
            self._groups[node] = placement_group(
                [bundle],
                strategy="PACK",
                bundle_label_selector=[{"host": node}],
                name=naming.slots_name(self._gang, node, number),
                lifetime="detached",
            )

    def group(self, node: str) -> PlacementGroup:
        return self._groups[node]

    def give_back(self, nodes: Iterable[str] | None = None) -> None:
        """Those of `nodes`, or all; whatever runs in them ends."""
        for node in list(self._groups if nodes is None else nodes):
            if (group := self._groups.pop(node, None)) is not None:
                remove_placement_group(group)

    def state(self, node: str) -> str:
        """Ray's word for where the reservation of `node` stands."""
        if (group := self._groups.get(node)) is None:
            return "NONE"
        return str(placement_group_table(group).get("stats", {}).get("scheduling_state", "UNKNOWN"))

    def _bundle(self, node: str, slots: Sequence[Slot], has: Mapping[str, float]) -> dict[str, float]:
        """The unit resource of each slot where the node has them, its GPUs and CPUs."""
        indexes = [slot.index for slot in slots if slot.node == node]
        cpus = self._cpus * len(indexes)
        if has and cpus > has.get("CPU", 0.0):  # nothing is known of a node that just died
            raise NodeTooSmallError(
                f"node {node} has {has.get('CPU', 0.0):g} CPUs, and its {len(indexes)} ranks need "
                f"{cpus:g} of them (resources.cpus_per_rank {self._cpus:g}); ask for less"
            )
        units = {f"gpu{index}": 1.0 for index in indexes if f"gpu{index}" in has}
        gpus = {"GPU": float(len(indexes))} if has.get("GPU") else {}
        bundle = {**units, **gpus, **({"CPU": cpus} if cpus else {})}
        return bundle or {f"gpu{index}": 1.0 for index in indexes}
