"""What a placement that somebody else chose would cost: the same prices as those of the solver."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.placement.cost import Pricing
from orchestrator.placement.demand import Workload
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.pockets import PocketTable
from orchestrator.placement.priced import Cost
from orchestrator.placement.seating import Seating
from orchestrator.placement.tariff import tariff_of
from orchestrator.topology.fabric import Fabric, Slot


def cost_of(mesh: Mesh, workload: Workload, fabric: Fabric, slots: Sequence[Slot]) -> Cost:
    """Seconds of communication in a step of a job whose rank r runs on `slots[r]`.

    ValueError for slots that the fabric has not, that are named twice, or that are not one a rank.
    """
    if len(slots) != mesh.size or len(set(slots)) != len(slots):
        raise ValueError(
            f"{len(slots)} slots, {len(set(slots))} of them different, for {mesh.size} ranks: one each"
        )
    table = PocketTable(fabric, fabric.slots(), lambda node: True)
    pocket_of = {Slot(p.node, index): i for i, p in enumerate(table.pockets) for index in p.free}
    if unknown := [slot for slot in slots if slot not in pocket_of]:
        raise ValueError(f"the fabric has no slot {unknown[0].index} on node {unknown[0].node}")
    pockets = np.array([pocket_of[slot] for slot in slots], dtype=np.int64)
    indexes = np.array([slot.index for slot in slots], dtype=np.int64)
    kinds = {node.accelerator for slot in slots if (node := fabric.node(slot.node)) is not None}
    kind = kinds.pop() if len(kinds) == 1 else None
    tariff = tariff_of(fabric.links, tuple(reversed(table.locality)))
    pricing = Pricing(mesh, workload.on(kind), tariff, workload.hidden_s(kind))
    return pricing.cost(Seating(table, pockets, indexes))
