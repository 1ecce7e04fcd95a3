"""The simulation: events in the order of time, and a pass over the queue after each round in which something changed.

Deterministic: the same jobs, faults and seed give the same report.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from enum import IntEnum

from orchestrator.lifecycle.decide import Verdict
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.outcome import PIPELINE_AXES
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Holding, Room, free_room
from orchestrator.queue.admission import Cluster, Start, Undecided, Vacate, Wait
from orchestrator.queue.claims import Running
from orchestrator.queue.reservation import Reservation, regained
from orchestrator.queue.use import UseMeter
from orchestrator.simulate.discipline import Discipline
from orchestrator.simulate.faults import NodeChange
from orchestrator.simulate.jobs import Assumptions, Shape, SimulatedJob
from orchestrator.simulate.life import Life
from orchestrator.simulate.placing import Placer
from orchestrator.simulate.report import Gauge, JobOutcome, Report, Tally, percentiles, share
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric

OUTCOMES_SHOWN = 1000
"""Jobs up to which the report has a line each."""


class _Kind(IntEnum):
    """Events; those of one time happen in this order."""

    NODE = 0
    DONE = 1
    GONE = 2
    """A job that was told to go is gone."""
    LIMIT = 3
    SUBMIT = 4


class Simulation:
    def __init__(
        self,
        fabric: Fabric,
        jobs: Sequence[SimulatedJob],
        discipline: Discipline,
        *,
        begin_s: float | None = None,
        changes: Sequence[NodeChange] = (),
        given: Assumptions | None = None,
        seed: int = 0,
    ) -> None:
        """`begin_s`: when it begins, None: with the first submission. `changes`: nodes that go and come, in seconds
        since then."""
        self._given = given or Assumptions()
        self._discipline = discipline
        self._seed = seed
        self._fabric = fabric
        self._placer = Placer(discipline.seen(fabric))
        self._solves = 0
        self._lives = {job.claim.job_id: Life(job, held_s=job.held_s) for job in jobs}
        asked: dict[Shape, Shape] = {}
        self._shapes = {
            job.claim.job_id: asked.setdefault(job.shape, discipline.asked(job.shape)) for job in jobs
        }
        self._waiting: dict[str, Life] = {}
        self._running: dict[str, Running] = {}
        self._room = free_room(self._placer.fabric, ())
        self._meter = UseMeter(discipline.policy.half_life_s)
        self._reservations: Sequence[Reservation] = ()
        self._limit_due = False
        self._tally = Tally()
        if begin_s is None:
            begin_s = min((job.submitted_s for job in jobs), default=0.0)
        self._begin_s, self._now_s = begin_s, begin_s
        last_s = max((job.submitted_s for job in jobs), default=begin_s)
        self._gauge = Gauge(begin_s, last_s if last_s > begin_s else math.inf, begin_s)
        self._events: list[tuple[float, int, str, int, float]] = []
        """(time, kind, job or node, incarnation or aliveness, time it was asked to go)."""
        for change in changes:
            self._push(begin_s + change.at_s, _Kind.NODE, change.node, int(change.alive))
        for job in jobs:
            if job.placed is None:
                self._push(max(begin_s, job.submitted_s), _Kind.SUBMIT, job.claim.job_id)
            else:
                self._take_over(job)

    def run(self) -> Report:
        while self._events:
            first_s = self._events[0][0] - self._begin_s
            round_s = self._given.round_s
            now_s = self._begin_s + math.ceil(first_s / round_s - 1e-9) * round_s
            self._measure(now_s)
            self._now_s = now_s
            while self._events and self._events[0][0] <= now_s + 1e-9:
                _, kind, name, number, asked_s = heapq.heappop(self._events)
                if kind == _Kind.NODE:
                    self._change_nodes([(name, bool(number)), *self._further_nodes(now_s)])
                else:
                    self._happen(_Kind(kind), name, number, asked_s)
            if self._waiting or self._limit_due:
                self._pass()
        return self._report()

    def _push(self, at_s: float, kind: _Kind, name: str, number: int = 0, asked_s: float = 0.0) -> None:
        heapq.heappush(self._events, (at_s, int(kind), name, number, asked_s))

    def _happen(self, kind: _Kind, name: str, number: int, asked_s: float) -> None:
        life = self._lives[name]
        if kind is _Kind.SUBMIT:
            self._waiting[name] = life
        elif name not in self._running or life.incarnation != number:
            return  # of a placement that is over
        elif kind is _Kind.LIMIT:
            self._limit_due = True
        elif kind is _Kind.DONE:
            self._release(life, life.succeed(self._now_s))
        elif kind is _Kind.GONE:
            self._release(life, life.vacated(self._now_s, asked_s, self._given))

    def _further_nodes(self, now_s: float) -> Iterator[tuple[str, bool]]:
        """The changes of nodes that come next, up to another event."""
        while self._events and self._events[0][0] <= now_s + 1e-9 and self._events[0][1] == _Kind.NODE:
            _, _, name, alive, _ = heapq.heappop(self._events)
            yield name, bool(alive)

    def _change_nodes(self, changes: Sequence[tuple[str, bool]]) -> None:
        """Nodes go or come, in this order and all at once; gangs that lie on one that goes lose it."""
        alive = dict(changes)
        nodes = tuple(
            replace(node, alive=alive[node.name]) if node.name in alive else node
            for node in self._fabric.nodes
        )
        self._fabric = Fabric(nodes, self._fabric.links)
        lost = list(dict.fromkeys(name for name, comes in changes if not comes))
        order = {name: number for number, name in enumerate(lost)}
        for job_id, job in list(self._running.items()):
            hit = {slot.node for slot in job.holding.slots} & order.keys()
            if hit:
                self._tally.node_losses += 1
                life = self._lives[job_id]
                first = min(hit, key=order.__getitem__)
                self._release(life, life.lose_node(first, self._now_s, self._given))
        self._solves += self._placer.solves
        self._placer = Placer(self._discipline.seen(self._fabric))
        self._room = free_room(self._placer.fabric, [job.holding for job in self._running.values()])

    def _take_over(self, job: SimulatedJob) -> None:
        """A job that runs when the simulation begins."""
        assert job.placed is not None
        life = self._lives[job.claim.job_id]
        placement = Placement(job.placed.slots, (), (), job.placed.cpus_per_rank)
        # As if it had begun so long ago that its unsaved work is done now; what it held before is less by that.
        ago_s = self._given.start_s + job.placed.unsaved_s
        life.held_s -= ago_s
        life.start(placement, self._begin_s - ago_s)
        life.first_start_s = max(job.submitted_s, self._begin_s - job.held_s)
        self._hold(life, placement)
        done_s = self._begin_s + job.work_s - job.placed.unsaved_s
        self._push(done_s, _Kind.DONE, job.claim.job_id, life.incarnation)

    def _hold(self, life: Life, placement: Placement) -> None:
        claim = life.job.claim
        waited_s = life.placed_s - life.job.submitted_s - life.held_s
        holding = Holding(placement.slots, placement.cpus_per_rank)
        running = Running(claim, holding, life.placed_s, life.held_s, waited_s, leaving=False)
        self._running[claim.job_id] = running
        self._room = self._room.without(placement)
        self._meter.change(claim.project, claim.size, self._now_s)
        if running.limit_s < math.inf:
            self._push(running.limit_s, _Kind.LIMIT, claim.job_id, life.incarnation)

    def _release(self, life: Life, verdict: Verdict) -> None:
        claim = life.job.claim
        running = self._running.pop(claim.job_id)
        self._room = regained(self._room, self._placer.fabric, [running.holding])
        self._meter.change(claim.project, -claim.size, self._now_s)
        if not verdict.state.is_terminal:
            self._waiting[claim.job_id] = life

    def _pass(self) -> None:
        """One pass of the controller over its queue."""
        now_s, self._limit_due = self._now_s, False
        waiting = [life.waiting(now_s) for life in self._waiting.values()]
        decisions, self._reservations = self._discipline.decide(
            waiting,
            Cluster(self._placer.fabric, self._room, list(self._running.values()), now_s),
            self._solve,
            held=self._meter.held,
            use=lambda: self._meter.means(now_s),
            earlier=self._reservations,
        )
        for decision in decisions:
            match decision:
                case Start():
                    self._start(decision)
                case Vacate():
                    self._ask_to_go(decision)
                case Wait():
                    self._lives[decision.job_id].message = decision.sentence
                case Undecided(error=error):
                    raise error

    def _solve(self, job_id: str, room: Room) -> Placement | Refusal:
        return self._placer.place(self._shapes[job_id], room)

    def _start(self, start: Start) -> None:
        life = self._waiting.pop(start.job_id)
        life.start(start.placement, self._now_s)
        self._hold(life, start.placement)
        done_s = self._now_s + self._given.start_s + life.job.work_s - life.done_s
        self._push(done_s, _Kind.DONE, start.job_id, life.incarnation)
        self._tally.starts += 1
        self._tally.passed += start.passed > 0
        self._count_pipelines(life, start.placement)

    def _ask_to_go(self, order: Vacate) -> None:
        life, running = self._lives[order.job_id], self._running[order.job_id]
        self._running[order.job_id] = replace(running, leaving=True)
        life.vacate = (order.reason, order.sentence)
        if order.reason is Reason.PREEMPTED:
            self._tally.preemptions += 1
        else:
            self._tally.time_limits += 1
        gone_s = self._now_s + min(life.job.claim.grace_s, self._given.save_s)
        self._push(gone_s, _Kind.GONE, order.job_id, life.incarnation, self._now_s)

    def _count_pipelines(self, life: Life, placement: Placement) -> None:
        mesh = life.job.shape.mesh
        if mesh.degree("pp") == 1:
            return
        for ranks in mesh.blocks(PIPELINE_AXES):
            self._tally.pipelines += 1
            leaves = {self._fabric.domain(placement.slots[rank], Tier.LEAF) for rank in ranks}
            self._tally.cross_leaf += len(leaves) > 1 or None in leaves

    def _measure(self, now_s: float) -> None:
        """What has been so since the last event."""
        free, total = self._placer.free_by_pocket(self._room)
        held = sum(self._meter.held.values())
        broken = (free > 0) & (free < total)
        self._gauge.advance(
            now_s,
            held=held,
            alive=int(total.sum()),
            free=int(free.sum()),
            free_on_broken=int(free[broken].sum()),
        )

    def _report(self) -> Report:
        lives = list(self._lives.values())
        for life in lives:
            self._tally.held_s += life.counted_s * life.job.claim.size
            useful_s = life.done_s if life.state is not JobState.FAILED else 0.0
            self._tally.useful_s += useful_s * life.job.claim.size
        waits = [
            life.first_start_s - life.job.submitted_s for life in lives if life.first_start_s is not None
        ]
        ends = [
            life.ended_s - life.job.submitted_s
            for life in lives
            if life.ended_s is not None and life.state is JobState.SUCCEEDED
        ]
        states = [life.state.value for life in lives]
        return Report(
            policy=self._discipline.name,
            seed=self._seed,
            accelerators=sum(node.accelerators for node in self._fabric.nodes),
            jobs=len(lives),
            states={state: states.count(state) for state in sorted(set(states))},
            wait_s=percentiles(waits),
            completion_s=percentiles(ends),
            makespan_s=round(self._now_s - self._begin_s, 3),
            utilisation=share(self._gauge.held, self._gauge.alive),
            fragmentation=share(self._gauge.free_on_broken, self._gauge.free),
            cross_leaf_share=share(self._tally.cross_leaf, self._tally.pipelines),
            goodput=share(self._tally.useful_s, self._tally.held_s),
            tally={name: round(value, 3) for name, value in asdict(self._tally).items()},
            solves=self._solves + self._placer.solves,
            outcomes=[_outcome(life) for life in lives] if len(lives) <= OUTCOMES_SHOWN else (),
        )


def _outcome(life: Life) -> JobOutcome:
    submitted_s, claim = life.job.submitted_s, life.job.claim
    return JobOutcome(
        claim.job_id,
        claim.name,
        life.state.value,
        life.message,
        None if life.first_start_s is None else round(life.first_start_s - submitted_s, 3),
        None if life.ended_s is None else round(life.ended_s - submitted_s, 3),
        life.incarnation,
        sorted({slot.node for slot in life.placement.slots}) if life.placement else (),
    )
