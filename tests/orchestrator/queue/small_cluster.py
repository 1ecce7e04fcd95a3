"""A cluster of leaves x nodes x 2 accelerators, jobs that wait and run on it, and passes over its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Holding, Room, free_room
from orchestrator.placement.solver import solve
from orchestrator.queue.admission import Admission, Cluster, Decision
from orchestrator.queue.claims import Claim, Running, Waiting
from orchestrator.queue.order import Shares
from orchestrator.queue.policy import QueuePolicy
from orchestrator.queue.reservation import Reservation
from orchestrator.spec.sections import ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot

NOW_S = 1_000_000.0


def fabric(leaves: int = 2, nodes: int = 2, slots: int = 2) -> Fabric:
    return Fabric(
        tuple(
            Node(f"l{leaf}n{node}", slots, {Tier.ISLAND: f"l{leaf}n{node}", Tier.LEAF: f"l{leaf}"})
            for leaf in range(leaves)
            for node in range(nodes)
        )
    )


def claim(name: str, size: int, **fields: object) -> Claim:
    given: dict[str, object] = {
        "project": "default",
        "priority": 0,
        "time_limit_s": None,
        "preemptible": False,
        "grace_s": 0.0,
        **fields,
    }
    return Claim(job_id=name, name=name, size=size, **given)  # type: ignore[arg-type]


def waiting(name: str, size: int, *, waited_s: float = 0.0, **fields: object) -> Waiting:
    return Waiting(claim(name, size, **fields), NOW_S - waited_s, waited_s)


def running(
    name: str, slots: Sequence[Slot], *, since_s: float = 0.0, leaving: bool = False, **fields: object
) -> Running:
    """Placed `since_s` seconds ago."""
    asked = claim(name, len(slots), **fields)
    return Running(asked, Holding(tuple(slots), 0.0), NOW_S - since_s, 0.0, 0.0, leaving)


def slots(*nodes: str) -> list[Slot]:
    """Both accelerators of each node."""
    return [Slot(node, index) for node in nodes for index in (0, 1)]


class Queue:
    """Passes over the queue of one cluster."""

    def __init__(self, policy: QueuePolicy | None = None, cluster: Fabric | None = None) -> None:
        self.policy = policy or QueuePolicy()
        self.fabric = cluster or fabric()
        self.reservations: list[Reservation] = []
        self.solves = 0

    def decide(
        self,
        jobs: Sequence[Waiting],
        on_it: Sequence[Running] = (),
        *,
        use: dict[str, float] | None = None,
        earlier: Sequence[Reservation] = (),
        now_s: float = NOW_S,
    ) -> list[Decision]:
        held = Counter[str]()
        for job in on_it:
            held[job.claim.project] += job.claim.size
        sizes = {job.claim.job_id: job.claim.size for job in jobs}

        def answer(job_id: str, room: Room) -> Placement | Refusal:
            self.solves += 1
            mesh = Mesh.of(ParallelismSpec(dp=sizes[job_id]))
            return solve(mesh, PlacementSpec(), self.fabric, room.slots, resources=ResourcesSpec())

        room = free_room(self.fabric, [job.holding for job in on_it])
        cluster = Cluster(self.fabric, room, on_it, now_s)
        shares = Shares(self.policy, held, use or {})
        admission = Admission(cluster, shares, self.policy, answer, earlier=earlier)
        decisions = list(admission.decisions(jobs))
        self.reservations = admission.reservations
        return decisions
