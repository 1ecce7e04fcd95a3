"""Accelerators that are kept for a job that waits: which, and from when on they are free at the latest.

Conservative: a reservation counts on time limits alone, never on a guess. Whoever holds accelerators without a limit
may hold them for ever, so a job gets no time from it; one that has waited too long gets the accelerators without a
time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Holding, Room
from orchestrator.queue.claims import Running, Waiting
from orchestrator.topology.fabric import Fabric

Solve = Callable[[str, Room], Placement | Refusal]
"""The solver's answer for a job (by its id) in a room."""


@dataclass(frozen=True, slots=True)
class Reservation:
    job_id: str
    name: str
    placement: Placement
    start_s: float
    """When all of it is free at the latest; infinite when nobody knows."""

    def binds(self, job: Waiting, now_s: float) -> bool:
        """Whether `job` may still be there when this begins, so that it has to stay off these accelerators. When that
        is nobody knows, so without a time everybody has to."""
        return self.start_s == math.inf or now_s + job.longest_s > self.start_s

    def meets(self, other: Placement) -> bool:
        """Whether `other` takes an accelerator of it, or CPUs of a node of it."""
        if not set(self.placement.slots).isdisjoint(other.slots):
            return True
        if self.placement.cpus_per_rank <= 0 or other.cpus_per_rank <= 0:
            return False
        return not {slot.node for slot in self.placement.slots}.isdisjoint(slot.node for slot in other.slots)


def reserve(
    job: Waiting,
    running: Sequence[Running],
    room: Room,
    fabric: Fabric,
    solve: Solve,
    *,
    now_s: float,
    without_time: bool,
) -> Reservation | None:
    """The earliest time by which enough of `running` has surely ended for `job` to fit, and where it then goes.

    None when that is never, or when nobody knows and `without_time` is False.
    """
    known = [other for other in running if other.ends_s < math.inf]
    if not known and not without_time:
        return None
    others = sorted(known, key=lambda other: (other.ends_s, other.claim.job_id))
    if without_time:
        others += sorted(
            (other for other in running if other.ends_s == math.inf),
            key=lambda other: (other.placed_s, other.claim.job_id),
        )
    found = fewest(job, others, room, fabric, solve)
    if found is None:
        return None
    count, placement = found
    ends_s = others[count - 1].ends_s if count else now_s
    return Reservation(job.claim.job_id, job.claim.name, placement, max(now_s, ends_s))


def fewest(
    job: Waiting, others: Sequence[Running], room: Room, fabric: Fabric, solve: Solve
) -> tuple[int, Placement] | None:
    """How many of `others`, from the first on, have to go for `job` to fit, and where; None when all are too few.

    By bisection: what fits into a room fits into a larger one.
    """

    def answer(count: int) -> Placement | Refusal:
        return solve(job.claim.job_id, regained(room, fabric, [other.holding for other in others[:count]]))

    best = answer(len(others))
    if isinstance(best, Refusal):
        return None
    low, high = 0, len(others)
    while low < high:
        middle = (low + high) // 2
        found = answer(middle)
        if isinstance(found, Placement):
            high, best = middle, found
        else:
            low = middle + 1
    return high, best


def regained(room: Room, fabric: Fabric, holdings: Sequence[Holding]) -> Room:
    """`room` once `holdings` are given back; what lies on dead or cordoned nodes is not."""
    slots, cpus = set(room.slots), dict(room.cpus)
    for holding in holdings:
        for slot in holding.slots:
            node = fabric.node(slot.node)
            if node is not None and node.alive and node.schedulable and slot.index < node.accelerators:
                slots.add(slot)
                if slot.node in cpus:
                    cpus[slot.node] += holding.cpus_per_rank
    return Room(frozenset(slots), cpus)


def without(room: Room, reservations: Sequence[Reservation]) -> Room:
    """`room` without what is free of `reservations`."""
    for kept in reservations:
        free = tuple(slot for slot in kept.placement.slots if slot in room.slots)
        room = room.without(replace(kept.placement, slots=free))
    return room


def can_be_kept(kept: Reservation, running: Sequence[Running], fabric: Fabric, *, now_s: float) -> bool:
    """Whether a reservation made earlier still holds: every accelerator is usable, and free by its time."""
    if kept.start_s < now_s:
        return False
    wanted = set(kept.placement.slots)
    for node in {slot.node for slot in wanted}:
        found = fabric.node(node)
        if found is None or not found.alive or not found.schedulable:
            return False
    return all(
        other.ends_s <= kept.start_s for other in running if not wanted.isdisjoint(other.holding.slots)
    )
