"""One run: submits the job of a scenario, strikes when faults are due, waits for the end, notes what is left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from actors.checkpoint.layout import parse_committed
from atoll.answers import Goodput
from orchestrator.lifecycle.states import JobState
from orchestrator.store import attempts, events, jobs, metrics, placements, timelines
from orchestrator.store.tables import Attempt, Event, Job, Metric, Placement
from tests.chaos.faults import NothingToStrikeError, NotPossibleError, Stage, strike
from tests.chaos.scenario import JOBS, Fault, Scenario, When, document
from tests.chaos.site import SLOTS, Site
from tests.chaos.witness import Witness

PROGRAMS = Path(__file__).parent / "programs"
PAUSE_S = 0.02
"""Twice a step of a replica: forty steps take some two seconds."""
LOOK_S = 0.005
ASK_S = 0.05
END_PATIENCE_S = 150.0
LEFT_PATIENCE_S = 40.0
"""From the end of the job until nothing is left of it: agents that were stopped end by their lease."""
VICTIM_PATIENCE_S = 30.0
"""How long a fault waits for its victim to come on stage: agents take seconds to start, on a busy machine many."""
OF_JOBS = ("ray::NodeAgent", "ray::Supervisor", "ray::VaultActor")
"""Titles of processes that a run must not leave. Ray keeps idle workers for the next one."""


@dataclass
class Observed:
    """All that is known of a run once it is over."""

    scenario: Scenario
    seconds: float
    ended: bool
    """The job reached a terminal state in time."""
    struck: list[str]
    """What each fault did, or why it did nothing."""
    job: Job
    events: Sequence[Event]
    metrics: Sequence[Metric]
    placements: Sequence[Placement]
    attempts: Sequence[Attempt]
    timelines: int
    goodput: Goodput
    witness: Witness
    checkpoints: Path
    corrupted: list[str]
    left: dict[int, str]
    """Processes that belong to a job, by id."""
    unfree: list[str]
    """Slots that are held though the job is over, in sentences."""


@dataclass
class _Play:
    """The faults of a scenario on their way."""

    stage: Stage
    faults: list[Fault]
    microbatches: int
    struck: list[str] = field(default_factory=list)
    started_at: float | None = None
    """When the job was seen to start, and the fault before struck, on the monotonic clock."""
    struck_at: float | None = None
    _due_since: float | None = None
    _written: set[int] = field(default_factory=set)

    def look(self) -> None:
        """Strikes with whatever is due."""
        self._see_checkpoints()
        while self.faults and self._is_due(self.faults[0]):
            if not self._try(self.faults[0]):
                return
            self.faults.pop(0)
            self.struck_at, self._due_since = time.monotonic(), None

    def _try(self, fault: Fault) -> bool:
        """False while the victim may still come."""
        self._due_since = self._due_since or time.monotonic()
        try:
            self.struck.append(strike(self.stage, fault))
        except NothingToStrikeError:
            if time.monotonic() - self._due_since < VICTIM_PATIENCE_S:
                return False
            self.struck.append("nothing to strike")
        except NotPossibleError as why:
            self.struck.append(f"not possible: {why}")
        return True

    def _is_due(self, fault: Fault) -> bool:
        match fault.when:
            case When.STEP:
                return self.stage.witness.steps(self.microbatches) >= fault.at
            case When.CHECKPOINT:
                return len(self._written) >= fault.at
            case When.START:
                return self.started_at is not None and time.monotonic() >= self.started_at + fault.at
            case When.AFTER:
                return self.struck_at is not None and time.monotonic() >= self.struck_at + fault.at

    def _see_checkpoints(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for path in self.stage.checkpoints.iterdir():
                committed = parse_committed(path.name)
                number = committed[0] if committed else path.name.rpartition("-step-")[2]
                if str(number).isdecimal():
                    self._written.add(int(number))


def run(site: Site, scenario: Scenario) -> Observed:
    """Runs it on a site that is whole. The site may not be whole afterwards."""
    witness = Witness(site.folder / f"witness-{time.time_ns()}")
    spec = document(scenario.job, witness=str(witness.path), programs=str(PROGRAMS), pause_s=PAUSE_S)
    job_id = site.client.submit(spec).id
    stage = Stage(site, witness, site.disk / job_id / "checkpoints")
    microbatches = JOBS[scenario.job]["parallelism"].get("microbatches", 1)
    play = _Play(stage, list(scenario.faults), microbatches)
    began = time.monotonic()
    try:
        ended = _watch(site, job_id, play, began + END_PATIENCE_S)
        seconds = time.monotonic() - began
    finally:
        stage.put_back(everything=True)
    play.struck += ["the job was over before"] * len(play.faults)
    left, unfree = _what_is_left(site, job_id) if ended else ({}, [])
    return _observe(site, job_id, scenario, seconds, ended, play, left, unfree)


def _watch(site: Site, job_id: str, play: _Play, deadline: float) -> bool:
    """Until the job is over and holds no slot; False when it is not in time."""
    ask_at = 0.0
    while time.monotonic() < deadline:
        play.stage.witness.look()
        play.stage.put_back()
        if time.monotonic() >= ask_at:
            ask_at = time.monotonic() + ASK_S
            state, released = _state(site, job_id)
            if state.is_terminal and released:
                return True
            if state is not JobState.QUEUED and play.started_at is None:
                play.started_at = time.monotonic()
        play.look()
        time.sleep(LOOK_S)
    return False


def _state(site: Site, job_id: str) -> tuple[JobState, bool]:
    try:
        with site.database.read() as session:
            state = JobState(jobs.get(session, job_id).state)
            return state, placements.unreleased_of(session, job_id) is None
    except OperationalError:
        return JobState.QUEUED, False


def _what_is_left(site: Site, job_id: str) -> tuple[dict[int, str], list[str]]:
    """Processes and slots, once nothing more goes away."""
    deadline = time.monotonic() + LEFT_PATIENCE_S
    while True:
        left, unfree = _processes(site), _unfree(site, job_id)
        if (not left and not unfree) or time.monotonic() > deadline:
            return left, unfree
        time.sleep(0.2)


def _processes(site: Site) -> dict[int, str]:
    """Supervisors, agents, vaults, zygotes and ranks (which have their zygote's title): one job runs at a time."""
    return {
        pid: text
        for pid, text in site.titles().items()
        if text.startswith(OF_JOBS) or "actors.zygote" in text
    }


def _unfree(site: Site, job_id: str) -> list[str]:
    found = []
    if site.whole():
        said = site.ray()
        found += [
            f"Ray counts {free:g} of 1 slot of {node} as free"
            for node, free in said["free"].items()
            if free < 1
        ]
        found += [f"Ray has the actor {name}" for name in said["actors"] if job_id in name]
        found += [f"Ray has the placement group {name}" for name in said["groups"] if job_id in name]
        if (free := site.client.cluster().free_slots) < SLOTS:
            found.append(f"the control plane counts {free} of {SLOTS} slots as free")
    return found


def _observe(
    site: Site,
    job_id: str,
    scenario: Scenario,
    seconds: float,
    ended: bool,
    play: _Play,
    left: dict[int, str],
    unfree: list[str],
) -> Observed:
    play.stage.witness.look()
    placed = select(Placement).where(Placement.job_id == job_id).order_by(Placement.incarnation)
    with site.database.read() as session:
        return Observed(
            scenario=scenario,
            seconds=seconds,
            ended=ended,
            struck=play.struck,
            job=jobs.get(session, job_id),
            events=events.after(session, job_id, limit=100_000),
            metrics=metrics.after(session, job_id, limit=100_000),
            placements=session.scalars(placed).all(),
            attempts=attempts.of_job(session, job_id),
            timelines=len(timelines.of_job(session, job_id)),
            goodput=site.client.goodput(job_id),
            witness=play.stage.witness,
            checkpoints=play.stage.checkpoints,
            corrupted=play.stage.corrupted,
            left=left,
            unfree=unfree,
        )
