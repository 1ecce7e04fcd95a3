"""The queue of the control plane: what SQL says, as the queue's values, and a memory that keeps unchanged questions
from being asked of the solver again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.lifecycle.specs import SpecCache
from orchestrator.lifecycle.view import JobView, holdings_of
from orchestrator.placement.demand import workload_of
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Holding, Room, free_room
from orchestrator.placement.solver import solve
from orchestrator.queue.admission import Admission, Cluster, Decision, expired
from orchestrator.queue.claims import Claim, Running, Waiting
from orchestrator.queue.order import Shares
from orchestrator.queue.policy import QueuePolicy
from orchestrator.queue.reservation import Reservation
from orchestrator.topology.fabric import Fabric

SOLVES_A_ROUND = 100
"""Questions asked of the solver in one round; the rest waits for the next, so that a long queue stops nothing else."""
QUESTIONS_KEPT = 4
"""Answers remembered of each job: about all that is free, about that without what is kept for others, and about that
with what others would give back."""
ROOMS_KEPT = 16


@dataclass(frozen=True, slots=True)
class Past:
    """What the queue needs to know of the time before: read from SQL."""

    held_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds for which each job held slots in earlier placements."""
    use: Mapping[str, float] = field(default_factory=dict)
    """Accelerators that each project held lately (`queue.use.mean_use`)."""


@dataclass(frozen=True, slots=True)
class _Question:
    fabric: Fabric
    room: Room


class Queueing:
    def __init__(self, specs: SpecCache, policy: QueuePolicy) -> None:
        self._specs = specs
        self._policy = policy
        self._rooms: list[Room] = []
        self._answers: dict[str, list[tuple[_Question, Placement | Refusal]]] = {}
        self._reservations: Sequence[Reservation] = ()
        self._solves = 0

    def decisions(
        self,
        views: Sequence[JobView],
        fabric: Fabric,
        past: Past,
        *,
        now_s: float,
        ready: Callable[[str], bool],
    ) -> list[Decision]:
        """What becomes of the waiting jobs and of those that must go, in the order of the queue; as many as one round
        has time for. `now_s`: UTC seconds since 1970.

        `ready` keeps back jobs that failed a moment ago; jobs whose spec was not read yet wait for a later round.
        """
        waiting = [
            self._waiting(view, past, now_s)
            for view in views
            if view.waits_for_placement
            and not view.cancel_requested
            and ready(view.id)
            and self._specs.is_known_good(view.id)
        ]
        running = [self._running(view, past) for view in views if view.gang is not None]
        self._forget_all_but(waiting)
        room = self._same(free_room(fabric, holdings_of(views)))
        held = Counter[str]()
        for job in running:
            held[job.claim.project] += job.claim.size
        admission = Admission(
            Cluster(fabric, room, running, now_s),
            Shares(self._policy, held, past.use),
            self._policy,
            lambda job_id, room: self._answer(job_id, fabric, room),
            earlier=self._reservations,
        )
        self._solves = 0
        found: list[Decision] = list(expired(running, now_s))
        for decision in admission.decisions(waiting):
            found.append(decision)
            if self._solves >= SOLVES_A_ROUND:
                break
        self._reservations = tuple(admission.reservations)
        return found

    @property
    def reservations(self) -> Sequence[Reservation]:
        """What the last pass keeps for jobs that wait."""
        return self._reservations

    def _waiting(self, view: JobView, past: Past, now_s: float) -> Waiting:
        submitted_s, held_s = view.created_at.timestamp(), past.held_s.get(view.id, 0.0)
        waited_s = max(0.0, now_s - submitted_s - held_s)
        return Waiting(Claim.of(view.id, self._specs.of(view.id)), submitted_s, waited_s, held_s)

    def _running(self, view: JobView, past: Past) -> Running:
        """A job whose spec is not read yet, or is none, is left alone: it has no limit and gives way to nobody."""
        assert view.gang is not None
        gang, held_s = view.gang, past.held_s.get(view.id, 0.0)
        if self._specs.is_known_good(view.id):
            claim = Claim.of(view.id, self._specs.of(view.id))
        else:
            claim = Claim(view.id, view.name, view.project, 0, len(gang.slots), None, False, 0.0)
        placed_s = gang.placed_at.timestamp()
        waited_s = max(0.0, placed_s - view.created_at.timestamp() - held_s)
        holding = Holding(gang.held, gang.cpus_per_rank)
        return Running(claim, holding, placed_s, held_s, waited_s, leaving=view.leaves)

    def _answer(self, job_id: str, fabric: Fabric, room: Room) -> Placement | Refusal:
        question = _Question(fabric, self._same(room))
        known = self._answers.setdefault(job_id, [])
        for asked, answer in known:
            if asked == question:
                return answer
        self._solves += 1
        spec = self._specs.of(job_id)
        mesh = Mesh.of(spec.parallelism)
        found = solve(
            mesh,
            spec.placement,
            fabric,
            room.slots,
            resources=spec.resources,
            cpus=room.cpus,
            workload=workload_of(spec),
        )
        known[:] = [*known[1 - QUESTIONS_KEPT :], (question, found)]
        return found

    def _same(self, room: Room) -> Room:
        """An equal room of before, if there is one: comparing questions is then cheap."""
        for known in self._rooms:
            if known == room:
                return known
        self._rooms = [*self._rooms[1 - ROOMS_KEPT :], room]
        return room

    def _forget_all_but(self, waiting: Sequence[Waiting]) -> None:
        keep = {job.claim.job_id for job in waiting}
        for job_id in [job_id for job_id in self._answers if job_id not in keep]:
            del self._answers[job_id]
