"""Waiting jobs against what is free: the solver, and a memory that keeps unchanged questions from being asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.lifecycle.decide import Scheduled, schedule
from orchestrator.lifecycle.specs import SpecCache
from orchestrator.lifecycle.view import JobView, holdings_of
from orchestrator.placement.demand import workload_of
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Room, free_room
from orchestrator.placement.solver import solve
from orchestrator.topology.fabric import Fabric

SOLVES_A_ROUND = 100
"""Questions asked of the solver in one round; the rest waits for the next, so that a long queue stops nothing else."""


@dataclass(frozen=True, slots=True)
class _Question:
    fabric: Fabric
    room: Room


class Queueing:
    def __init__(self, specs: SpecCache) -> None:
        self._specs = specs
        self._room = Room(frozenset())
        self._refused: dict[str, tuple[_Question, Refusal]] = {}

    def answers(
        self, views: Sequence[JobView], fabric: Fabric, *, ready: Callable[[str], bool]
    ) -> list[Scheduled]:
        """Placements and refusals for the waiting jobs, oldest first; as many as one round has time for.

        `ready` keeps back jobs that failed a moment ago; jobs whose spec was not read yet wait for a later round.
        """
        waiting = [
            view
            for view in views
            if view.waits_for_placement
            and not view.cancel_requested
            and ready(view.id)
            and self._specs.is_known_good(view.id)
        ]
        self._forget_all_but(waiting)
        asked: list[Scheduled] = []
        solves = 0

        def answer(job: JobView, room: Room) -> Placement | Refusal:
            nonlocal solves
            question = _Question(fabric, room)
            known = self._refused.get(job.id)
            if known is not None and known[0] == question:
                return known[1]
            solves += 1
            spec = self._specs.of(job.id)
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
            if isinstance(found, Refusal):
                self._refused[job.id] = (question, found)
            return found

        room = free_room(fabric, holdings_of(views))
        if room == self._room:  # the same object: comparing questions is then cheap
            room = self._room
        self._room = room
        for scheduled in schedule(waiting, room, answer):
            asked.append(scheduled)
            if solves >= SOLVES_A_ROUND:
                break
        return asked

    def _forget_all_but(self, waiting: Sequence[JobView]) -> None:
        keep = {view.id for view in waiting}
        for job_id in [job_id for job_id in self._refused if job_id not in keep]:
            del self._refused[job_id]
