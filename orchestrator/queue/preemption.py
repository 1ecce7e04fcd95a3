"""Preemption: which running jobs give way to one of higher priority. Whole gangs, as few as will do."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from orchestrator.placement.placement import Placement
from orchestrator.placement.room import Room
from orchestrator.queue.claims import Running, Waiting
from orchestrator.queue.order import has_starved
from orchestrator.queue.policy import QueuePolicy
from orchestrator.queue.reservation import Solve, fewest, regained
from orchestrator.topology.fabric import Fabric, Slot


def victims(
    job: Waiting,
    running: Sequence[Running],
    room: Room,
    fabric: Fabric,
    policy: QueuePolicy,
    solve: Solve,
) -> tuple[list[Running], Placement] | None:
    """Who gives way so that `job` fits, and where it then goes; nobody when those that leave anyway are enough.

    None when no choice is enough. Lowest priority first, then the one that was placed last: the least work is at
    stake. A job that has waited too long for its place keeps it.
    """
    leaving = [other for other in running if other.leaving]
    lower = [
        other
        for other in running
        if other.claim.preemptible
        and other.claim.priority < job.claim.priority
        and not other.leaving
        and not has_starved(other.waited_s, policy)
    ]
    if not lower and not leaving:
        return None
    room = regained(room, fabric, [other.holding for other in leaving])
    lower.sort(key=lambda other: (other.claim.priority, -other.placed_s, other.claim.job_id))
    found = fewest(job, lower, room, fabric, solve)
    if found is None:
        return None
    count, placement = found
    taken = set(placement.slots)
    needed = [other for other in lower[:count] if _stands_in_the_way(other, placement, taken)]
    return needed, placement


def _stands_in_the_way(other: Running, placement: Placement, taken: AbstractSet[Slot]) -> bool:
    """Whether `placement` needs what `other` holds: its accelerators, or CPUs beside them."""
    if not taken.isdisjoint(other.holding.slots):
        return True
    if placement.cpus_per_rank <= 0 or other.holding.cpus_per_rank <= 0:
        return False
    nodes = {slot.node for slot in placement.slots}
    return any(slot.node in nodes for slot in other.holding.slots)
