"""A seed -> a job and the faults that strike it. Pure: the same seed is the same scenario, on every machine."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

STEPS = 40
SAVED_EVERY = 10


class Kind(StrEnum):
    """What is done, and to whom."""

    KILL_RANK = "kill-rank"
    ABORT_RANK = "abort-rank"
    STOP_RANK = "stop-rank"
    SLOW_RANK = "slow-rank"
    """Stopped and continued again and again."""
    KILL_AGENT = "kill-agent"
    ABORT_AGENT = "abort-agent"
    STOP_AGENT = "stop-agent"
    KILL_SUPERVISOR = "kill-supervisor"
    ABORT_SUPERVISOR = "abort-supervisor"
    STOP_SUPERVISOR = "stop-supervisor"
    KILL_RAYLET = "kill-raylet"
    """A node is lost."""
    KILL_HEAD = "kill-head"
    """Ray's GCS: the whole cluster ends, and another one takes its place."""
    KILL_CONTROLLER = "kill-controller"
    KILL_API = "kill-api"
    KILL_CONTROL_PLANE = "kill-control-plane"
    """`atoll serve` with all its children."""
    DATABASE_OUTAGE = "database-outage"
    DISK_FULL = "disk-full"
    SLOW_LINK = "slow-link"
    CUT_LINK = "cut-link"
    RESET_LINK = "reset-link"
    """The connections of a rank are reset, as by a switch that has forgotten them."""
    CORRUPT_SHARD = "corrupt-shard"
    """A byte of the newest checkpoint is changed; a rank is killed with it, so that it is read."""


class When(StrEnum):
    """What a fault waits for. `at` of the fault is counted in the unit that is named here."""

    STEP = "step"
    """Steps begun by rank 0, over all attempts."""
    START = "start"
    """Seconds since the job began to start."""
    CHECKPOINT = "checkpoint"
    """Checkpoints whose writing was seen, the first one included."""
    AFTER = "after"
    """Seconds since the fault before: 0 is both at once, some seconds are in the repair."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    when: When
    at: float
    victim: int = 0
    """Rank, or number of the node, agent or raylet among those of the job."""
    for_s: float | None = None
    """How long it lasts; None: for ever, or until the platform puts it right."""

    def __str__(self) -> str:
        lasts = "" if self.for_s is None else f" for {self.for_s:g} s"
        at = f"{self.at:g}" if self.when in (When.STEP, When.CHECKPOINT) else f"{self.at:g} s"
        return f"{self.kind} {self.victim}{lasts} ({self.when} {at})"


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    job: str
    """Key of `JOBS`."""
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.job}: " + ", then ".join(str(fault) for fault in self.faults)


JOBS: dict[str, dict[str, Any]] = {
    "replicas": {"parallelism": {"dp": 2}},
    "zero": {"parallelism": {"dp": 2, "zero": 2}},
    "pipeline": {
        "parallelism": {"pp": 2, "microbatches": 2},
        "placement": {"pp": {"tier": "any", "mode": "preferred"}},
    },
    "memory": {"parallelism": {"dp": 2}, "memory": {"every": 3}},
    "elastic": {"parallelism": {"dp": 4}, "recovery": {"min_dp": 2}, "precision": "fp64"},
}
"""What differs between the jobs. `elastic` holds every slot of the cluster: a lost node costs it a replica."""

WORLD = {"replicas": 2, "zero": 2, "pipeline": 2, "memory": 2, "elastic": 4}

WEIGHTS = {
    Kind.KILL_RANK: 3,
    Kind.STOP_RANK: 2,
    Kind.SLOW_RANK: 2,
    Kind.KILL_AGENT: 2,
    Kind.STOP_AGENT: 2,
    Kind.KILL_SUPERVISOR: 2,
    Kind.KILL_CONTROLLER: 2,
    Kind.KILL_CONTROL_PLANE: 2,
    Kind.DATABASE_OUTAGE: 2,
    Kind.DISK_FULL: 2,
    Kind.CORRUPT_SHARD: 2,
}
"""How often a kind is drawn against the others, which have 1."""
LASTING = {
    Kind.STOP_RANK: (0.5, None),
    Kind.STOP_AGENT: (3.0, None),
    Kind.STOP_SUPERVISOR: (3.0, None),
    Kind.SLOW_RANK: (2.0, 4.0),
    Kind.DATABASE_OUTAGE: (1.0, 6.0),
    Kind.DISK_FULL: (1.0, 3.0),
    Kind.SLOW_LINK: (2.0, 4.0),
    Kind.CUT_LINK: (0.5, 6.0),
}
"""For how many seconds, one of the two."""
OF_THE_CLUSTER = frozenset({Kind.KILL_RAYLET, Kind.KILL_HEAD})
NEEDS_STEPS = frozenset({Kind.SLOW_RANK, Kind.SLOW_LINK, Kind.CUT_LINK, Kind.RESET_LINK, Kind.CORRUPT_SHARD})
"""What has nothing to strike before the job trains."""


def scenario(seed: int) -> Scenario:
    """One fault, or two: of these a third at once, the others in the repair of the first."""
    dice = random.Random(f"chaos-{seed}")
    job = dice.choice(sorted(JOBS))
    first = _fault(dice, job, _draw(dice, job, without=frozenset()), _moment(dice))
    faults = [first]
    if dice.random() < 0.4:
        after_s = 0.0 if dice.random() < 1 / 3 else round(dice.uniform(0.2, 6.0), 1)
        # A second one of the cluster would leave no room for anybody.
        without = OF_THE_CLUSTER if first.kind in OF_THE_CLUSTER else frozenset()
        kind = _draw(dice, job, without=without | {Kind.CORRUPT_SHARD})
        faults.append(_fault(dice, job, kind, (When.AFTER, after_s)))
    if first.kind is Kind.CORRUPT_SHARD:
        faults.insert(1, Fault(Kind.KILL_RANK, When.AFTER, 0.0, dice.randrange(WORLD[job])))
    return Scenario(seed, job, tuple(faults))


def scenarios(first_seed: int, count: int) -> Iterator[Scenario]:
    return (scenario(seed) for seed in range(first_seed, first_seed + count))


def _draw(dice: random.Random, job: str, *, without: frozenset[Kind]) -> Kind:
    kinds = [kind for kind in Kind if kind not in without]
    return dice.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])[0]


def _moment(dice: random.Random) -> tuple[When, float]:
    when = dice.choices((When.STEP, When.START, When.CHECKPOINT), (5, 2, 2))[0]
    if when is When.STEP:
        return when, dice.randint(2, STEPS - 4)
    if when is When.START:
        return when, round(dice.uniform(0.0, 4.0), 1)
    return when, dice.randint(1, STEPS // SAVED_EVERY - 1)


def _fault(dice: random.Random, job: str, kind: Kind, moment: tuple[When, float]) -> Fault:
    when, at = moment
    if when is When.START and kind in NEEDS_STEPS:
        when, at = When.STEP, dice.randint(2, STEPS - 4)
    if kind is Kind.CORRUPT_SHARD:
        when, at = When.STEP, dice.randint(SAVED_EVERY * 2 + 5, STEPS - 4)
    victim = dice.randrange(WORLD[job])
    for_s = dice.choice(LASTING[kind]) if kind in LASTING else None
    return Fault(kind, when, at, victim, for_s)


def document(job: str, *, witness: str, programs: str, pause_s: float) -> dict[str, Any]:
    """The job file of `job`."""
    what = JOBS[job]
    return {
        "name": f"chaos-{job}",
        "model": {
            "import": "chaos_model:build",
            "import_path": programs,
            "options": {"witness": witness, "pause_s": pause_s},
            "blocks": "blocks",
            "embed": ["embed"],
            "head": ["head"],
        },
        "parallelism": what["parallelism"],
        "training": {
            "steps": STEPS,
            "global_batch": 8,
            "sequence_length": 16,
            "eval_sequences": 2,
            "precision": what.get("precision", "fp32"),
        },
        "checkpoint": {"every": SAVED_EVERY, "keep": 3, "memory": what.get("memory", {})},
        "recovery": {
            "max_restarts": 20,
            "max_restarts_at_step": 10,
            "hang_after_s": 2.0,
            "step_timeout_s": 120.0,
            **what.get("recovery", {}),
        },
        **({"placement": what["placement"]} if "placement" in what else {}),
    }
