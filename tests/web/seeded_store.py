"""Fills a database, through the store's own repositories, with jobs in every state: `python seeded_store.py URL`.

Prints the ids as JSON by a short name each. A script and not a fixture, so that a person can look at the result too.
"""

from __future__ import annotations

import json
import math
import random
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import uuid6
from sqlalchemy import insert
from sqlalchemy.orm import Session

from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.heat import HeatRecorder
from orchestrator.lifecycle.reports import EventKind, GangEvent, HealthReport, LogTail, RankFacts, StepRecord
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.solver import solve
from orchestrator.queue.policy import ProjectPolicy, QueuePolicy
from orchestrator.spec import JobSpec
from orchestrator.spec.sections import Tier
from orchestrator.store import (
    attempts,
    checkpoints,
    events,
    health,
    jobs,
    leases,
    logs,
    metrics,
    nodes,
    placements,
    timelines,
)
from orchestrator.store.engine import open_database
from orchestrator.store.migrations.upgrade import upgrade
from orchestrator.store.tables import Job
from orchestrator.topology.fabric import Fabric, Node, Slot

NOW = datetime.now(UTC)
BULK = 10_000
UNIGRAM = 3.0876
TRACEBACK = """Rank 3 raised an error at step 17.
Traceback (most recent call last):
  File "/srv/jobs/finetune/train.py", line 212, in train
    loss = model(tokens, targets)
  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1751, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
RuntimeError: The size of tensor a (128) must match the size of tensor b (127) at non-singleton dimension 1
"""


def main(url: str) -> None:
    upgrade(url)
    database = open_database(url)
    made: dict[str, str] = {}
    with database.write() as session:
        bulk(session, BULK)
    with database.write() as session:
        fabric = cluster(session)
        made["giant"] = giant(session)
        made["succeeded"] = succeeded(session, fabric)
        made["failed"] = failed(session)
        made["cancelled"] = settled(
            session, "embeddings-sweep", JobState.CANCELLED, Reason.CANCELLED_BY_USER, ""
        )
        made["never"] = settled(
            session,
            "llama-405b",
            JobState.QUEUED,
            Reason.NEVER_FITS,
            "No leaf has 16 slots, which one pipeline needs: leaf l0 has 4.",
            parallelism={"tp": 2, "pp": 8, "dp": 1},
            model={"layers": 8},
            queue={"project": "research"},
        )
        made["over_quota"] = settled(
            session,
            "vision-tuner",
            JobState.QUEUED,
            Reason.OVER_QUOTA,
            "project vision holds 0 of its quota of 4 accelerators, 8 needed",
            queue={"project": "vision"},
        )
        made["queued"] = settled(
            session,
            "pretrain-en",
            JobState.QUEUED,
            Reason.NO_ROOM,
            "leaf l0: 0 free, 4 needed for one pipeline; the nearest that would do is leaf l1 when job demo ends.",
            queue={"priority": 10},
        )
        kept = {"size": 8, "nodes": ["n0", "n1", "n2", "n3"], "start_at": "2026-12-02T09:30:00+00:00"}
        jobs.summarise(session, made["queued"], {"reservation": kept})
        made["starting"] = settled(session, "ablation-rope", JobState.STARTING, Reason.NONE, "")
        made["recovering"] = settled(
            session,
            "long-context",
            JobState.RECOVERING,
            Reason.RANK_DIED,
            "Rank 5 was ended by signal 9 at step 81.",
        )
        made["stopping"] = settled(session, "probe", JobState.STOPPING, Reason.CANCELLED_BY_USER, "")
        made["running"] = running(session, fabric)
    database.close()
    print(json.dumps(made))


def spec(name: str, **sections: object) -> JobSpec:
    document: dict[str, object] = {
        "name": name,
        "parallelism": {"tp": 2, "pp": 2, "dp": 2, "microbatches": 4},
        "training": {"steps": 120, "eval_every": 20},
        "checkpoint": {"every": 20},
    }
    return JobSpec.model_validate(document | sections)


def bulk(session: Session, count: int) -> None:
    """Old, ended jobs: what a list of thousands is made of."""
    document = spec("sweep").model_dump(mode="json")
    states = [JobState.SUCCEEDED] * 7 + [JobState.FAILED] * 2 + [JobState.CANCELLED]
    rng = random.Random(7)
    rows = []
    for i in range(count):
        state = rng.choice(states)
        began = NOW - timedelta(minutes=30 * (count - i) + 600)
        rows.append(
            {
                "id": str(uuid6.uuid7()),
                "name": f"sweep-{i:05d}",
                "state": state.value,
                "reason": {"succeeded": "completed", "failed": "no-progress"}.get(
                    state.value, "cancelled-by-user"
                ),
                "message": "",
                "world_size": 8,
                "plan": "tp2 pp2 dp2",
                "total_steps": 120,
                "step": 120 if state is JobState.SUCCEEDED else rng.randrange(120),
                "loss": 2.1 + rng.random(),
                "tokens_per_s": 9_000 + 500 * rng.random(),
                "created_at": began,
                "started_at": began + timedelta(seconds=4),
                "finished_at": began + timedelta(minutes=rng.randrange(1, 29)),
                "fingerprint": "0" * 64,
                "spec": document,
            }
        )
    session.execute(insert(Job), rows)


def cluster(session: Session) -> Fabric:
    """Two leaves with two nodes each in use, a third with one node lost and one that takes no work."""
    known = tuple(
        Node(
            name=f"n{i}",
            accelerators=2,
            domains={Tier.ISLAND: f"i{i}", Tier.LEAF: f"l{i // 2}", Tier.SPINE: "s0"},
            accelerator="cpu",
            schedulable=i != 5,
        )
        for i in range(6)
    )
    nodes.observe(session, Fabric(known), now=NOW)
    nodes.observe(session, Fabric(known[:4] + known[5:]), now=NOW)
    token = leases.acquire(session, "seed", now=NOW, ttl=timedelta(days=1), endpoint=None)
    assert token is not None
    leases.report_cluster(session, token, reachable=True, message="")
    policy = QueuePolicy(
        projects={"vision": ProjectPolicy(weight=2.0, quota=4), "nlp": ProjectPolicy(quota=16)}
    )
    use = {"default": 6.25, "research": 1.5}
    leases.report_queue(session, token, {"policy": policy.model_dump(mode="json"), "use": use})
    return Fabric(known[:4])


def submitted(session: Session, file: JobSpec, ago: timedelta) -> str:
    return jobs.insert(session, file, now=NOW - ago).job.id


def settled(
    session: Session, name: str, state: JobState, reason: Reason, message: str, **sections: object
) -> str:
    """A job that is just in a state."""
    job_id = submitted(session, spec(name, **sections), timedelta(minutes=9))
    jobs.set_state(session, job_id, state, reason, message, now=NOW - timedelta(minutes=8))
    return job_id


def placed(session: Session, job_id: str, file: JobSpec, fabric: Fabric, at: datetime) -> Placement:
    """Solved by the real solver on the whole fabric, stored and certified."""
    mesh = Mesh.of(file.parallelism)
    free = frozenset(Slot(node.name, i) for node in fabric.nodes for i in range(node.accelerators))
    decided = solve(mesh, file.placement, fabric, free, resources=file.resources)
    assert not isinstance(decided, Refusal), decided.message
    placements.insert(
        session, job_id, 1, decided, fabric, first_attempt=1, restarts_used=0, deaths_at_step=(0, 0), now=at
    )
    facts = [
        RankFacts(rank=rank, node=slot.node, index=slot.index, pid=4_100 + rank, device="cpu")
        for rank, slot in enumerate(decided.slots)
    ]
    placements.certify(session, job_id, 1, facts)
    jobs.summarise(session, job_id, {"incarnation": 1})
    return decided


def loss_at(step: int) -> float:
    return 2.05 + 3.4 * math.exp(-step / 28) + 0.03 * math.sin(step * 1.7)


def steps(first: int, last: int, *, attempt: int, seq: int, began: datetime) -> list[StepRecord]:
    rng = random.Random(first)
    records = []
    for i, step in enumerate(range(first, last + 1)):
        pace = 9_400 + 350 * rng.random()
        records.append(
            StepRecord(
                seq=seq + i,
                at=(began + timedelta(seconds=0.22 * i)).timestamp(),
                attempt=attempt,
                step=step,
                loss=loss_at(step),
                grad_norm=1.0 / math.sqrt(step),
                learning_rate=3e-3 * min(1, step / 10),
                tokens=2048,
                step_time_s=2048 / pace,
                tokens_per_s=pace,
                cost=cost_at(step, 2048 / pace),
            )
        )
    return records


def cost_at(step: int, seconds: float) -> dict[str, object]:
    """Eight ranks, tp2 pp2 dp2, on CPUs: no utilisation."""
    shares = {"data": 0.01, "forward": 0.2, "backward": 0.38, "optimizer": 0.05, "other": 0.02}
    waits = {"tp": 0.16, "pp": 0.12, "dp": 0.05, "control": 0.01}
    return {
        "sent_bytes": {"tp": 592_512, "pp": 32_768, "dp": 230_400},
        "phases_s": {phase: seconds * share for phase, share in shares.items()},
        "exposed_s": {axis: seconds * share for axis, share in waits.items()},
        "peak_bytes": (280 << 20) + 1024 * step,
        "model_flops_per_s": 2.2e9 * 0.3 / seconds,
    }


def loads(step: int, experts: int) -> dict[str, object]:
    layers = [
        {
            "layer": layer,
            "assigned": [200 + (37 * (expert + layer)) % 120 for expert in range(experts)],
            "dropped": [expert % 3 * 9 for expert in range(experts)],
        }
        for layer in range(4)
    ]
    return {"step": step, "layers": layers, "layers_with_experts": 8}


def evaluated(seq: int, attempt: int, step: int, at: datetime) -> GangEvent:
    held_back = loss_at(step) + 0.08
    return GangEvent(
        seq,
        at.timestamp(),
        EventKind.EVALUATED,
        attempt,
        f"Held-back loss {held_back:.3f} nats/token at step {step}; a unigram model has {UNIGRAM:.3f}.",
        {"step": step, "loss": held_back, "unigram_loss": UNIGRAM},
    )


def training(
    session: Session,
    job_id: str,
    *,
    died_at: int,
    resumed_at: int,
    now_at: int,
    began: datetime,
    experts: int = 0,
) -> None:
    """Two attempts: the first dies at `died_at`, the second goes on from the checkpoint of `resumed_at`."""
    clock = iter(began + timedelta(seconds=3 * i) for i in range(10_000))
    told: list[GangEvent] = []

    def tell(kind: EventKind, attempt: int, message: str, **data: object) -> None:
        told.append(GangEvent(len(told) + 1, next(clock).timestamp(), kind, attempt, message, data))

    tell(EventKind.SUPERVISOR_STARTED, 1, "The supervisor is up.")
    tell(EventKind.ATTEMPT_STARTED, 1, "Attempt 1: 8 ranks on 4 nodes.")
    tell(EventKind.CERTIFIED, 1, "All 8 ranks sit where they were placed; every tp group in one island.")
    tell(EventKind.TRAINING_STARTED, 1, "Step 1 of 120 begins.")
    for step in range(20, died_at, 20):
        told.append(evaluated(len(told) + 1, 1, step, next(clock)))
        tell(EventKind.CHECKPOINT_COMMITTED, 1, f"Checkpoint of step {step} committed.", step=step)
    tell(
        EventKind.RANK_DIED,
        1,
        f"Rank 5 on node n2 was ended by signal 9 at step {died_at}.",
        rank=5,
        step=died_at,
    )
    tell(EventKind.ATTEMPT_ENDED, 1, "All other ranks were ended.")
    tell(EventKind.REPAIR_STARTED, 2, "Restart in place: 1 of 5 restarts used.", rung="in-place")
    tell(EventKind.ATTEMPT_STARTED, 2, "Attempt 2: 8 ranks on 4 nodes.")
    tell(EventKind.CERTIFIED, 2, "All 8 ranks sit where they were placed.")
    tell(EventKind.RESUMED, 2, f"Resumed from the checkpoint of step {resumed_at}.", step=resumed_at)
    tell(EventKind.REPAIRED, 2, "Training goes on 2.9 s after the rank died.")
    tell(EventKind.TRAINING_STARTED, 2, "All 8 ranks are ready.")
    trains_again = datetime.fromtimestamp(told[-1].at, UTC)
    for step in range(resumed_at + 20, now_at + 1, 20):
        told.append(evaluated(len(told) + 1, 2, step, next(clock)))
        tell(EventKind.CHECKPOINT_COMMITTED, 2, f"Checkpoint of step {step} committed.", step=step)
    if experts:
        tell(EventKind.EXPERT_LOAD, 2, f"Experts in step {now_at}.", **loads(now_at, experts))
    events.append_gang(session, job_id, 1, told)

    half = trains_again + timedelta(seconds=1)
    first_step = began + timedelta(seconds=10)
    metrics.append(session, job_id, 1, steps(1, died_at, attempt=1, seq=1, began=first_step))
    second = steps(resumed_at + 1, now_at, attempt=2, seq=died_at + 1, began=half)
    metrics.append(session, job_id, 1, second)
    attempts.start(session, job_id, 1, incarnation=1, at=began)
    attempts.end(
        session,
        job_id,
        1,
        at=half,
        outcome="rank-died",
        end_step=died_at,
        message="Rank 5 was ended by signal 9.",
    )
    attempts.start(session, job_id, 2, incarnation=1, at=half, start_step=resumed_at)
    for step in [*range(20, died_at, 20), *range(resumed_at + 20, now_at + 1, 20)]:
        checkpoints.commit(
            session,
            job_id,
            step=step,
            attempt=1 if step < died_at else 2,
            path=f"/var/lib/atoll/jobs/{job_id}/checkpoints/step-{step:08d}",
            size_bytes=12_582_912 + step,
            at=began + timedelta(seconds=step),
        )
    checkpoints.prune(session, job_id, [20])
    jobs.summarise(
        session,
        job_id,
        {
            "step": now_at,
            "loss": second[-1].loss,
            "tokens_per_s": second[-1].tokens_per_s,
            "restarts": 1,
            "evaluation": {
                "step": now_at // 20 * 20,
                "loss": loss_at(now_at) + 0.08,
                "unigram_loss": UNIGRAM,
            },
        },
    )


def kept_logs(session: Session, job_id: str, attempt: int, lines: int) -> None:
    tails = []
    for rank in range(8):
        text = "".join(
            f"2026-11-30T22:14:{i % 60:02d}Z rank {rank} step {i} loss {loss_at(i + 1):.4f} grad_norm 0.{i % 97:02d}\n"
            for i in range(lines)
        )
        tails.append(LogTail(attempt, rank, text, len(text.encode())))
    logs.keep(session, job_id, tails)


def running(session: Session, fabric: Fabric) -> str:
    file = spec("demo")
    began = NOW - timedelta(minutes=4)
    job_id = submitted(session, file, timedelta(minutes=4, seconds=5))
    events.append(session, job_id, EventKind.PLACED, "Placed on n0, n1, n2, n3.", at=began)
    placed(session, job_id, file, fabric, began)
    jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=began)
    training(session, job_id, died_at=46, resumed_at=40, now_at=83, began=began)
    kept_logs(session, job_id, 1, 400)
    timelines.keep(session, job_id, [timeline(2, 1), timeline(42, 2), timeline(50, 2)])
    compared(session, job_id, attempt=2, ranks=8, steps=range(44, 84), slow=5, since=60)
    return job_id


def compared(
    session: Session, job_id: str, *, attempt: int, ranks: int, steps: range, slow: int, since: int
) -> None:
    """What the health tab shows: a rank that computes 1.31 times as long as its peers since some step."""
    dice = np.random.default_rng(7)
    heat = HeatRecorder(attempt, ranks)
    for step in steps:
        compute = dice.normal(0.3, 0.006, ranks)
        if step >= since:
            compute[slow] *= 1.31
        heat.add(step, compute, compute.max() - compute, step_s=0.4)
        if heat.blocks()[-1].is_whole:
            health.keep(session, job_id, HealthReport(attempt, Clock.WALL, (), tuple(heat.blocks())), at=NOW)
    on = f"Rank {slow} on node n{slow // 2}"
    found = Finding(
        attempt=attempt,
        category=Category.STRAGGLER,
        kind="onset",
        subject=f"rank {slow}",
        ranks=(slow,),
        nodes=(f"n{slow // 2}",),
        from_step=since,
        to_step=steps[-1],
        factor=1.31,
        cost_s=0.093 * (steps[-1] - since + 1),
        step_cost_s=0.093,
        confidence=0.96,
        ongoing=True,
        clock=Clock.WALL,
        sentence=f"{on} computes 1.31 times as long as its peers since step {since}; costs 0.093 s a step.",
    )
    past = replace(
        found,
        kind="transient",
        from_step=since - 12,
        to_step=since - 6,
        ongoing=False,
        confidence=0.82,
        sentence=f"{on} computes 1.31 times as long as its peers from step {since - 12} to {since - 6}; "
        "cost 0.093 s a step.",
    )
    uneven = replace(
        past,
        category=Category.IMBALANCE,
        kind="stage",
        subject="stage 1",
        ranks=(2, 3, 6, 7),
        ongoing=True,
        sentence="Stage 1 computes 1.18 times as long as the other stages do on average, on every replica: give it "
        f"fewer layers; since step {steps[0]} it costs 0.05 s a step.",
    )
    watched = replace(
        past,
        category=Category.WATCH,
        kind="trend",
        subject="trend rank 1",
        ranks=(1,),
        sentence="Rank 1 on node n0 takes 4.1% longer than its peers all along, too little or too usual in this job to "
        f"be called slow; from step {steps[0]} to {steps[-1]} it cost 0.012 s a step.",
    )
    told = HealthReport(attempt, Clock.WALL, (past, found, uneven, watched), tuple(heat.blocks()))
    health.keep(session, job_id, told, at=NOW)


def timeline(step: int, attempt: int) -> GangEvent:
    """1F1B on two ranks with four micro-batches, forward 20 ms, backward 40 ms, a little slower than ideal."""
    orders = (
        ["F0", "F1", "B0", "F2", "B1", "F3", "B2", "B3"],
        ["F0", "B0", "F1", "B1", "F2", "B2", "F3", "B3"],
    )
    ended: dict[tuple[str, int], int] = {}
    spans: list[list[list[object]]] = [[], []]
    free = [0, 0]
    while any(len(done) < 8 for done in spans):
        for stage, done in enumerate(spans):
            if len(done) == 8:
                continue
            work, micro = orders[stage][len(done)][0], int(orders[stage][len(done)][1])
            needs = None if (work, stage) in {("F", 0), ("B", 1)} else (f"{work}{1 - stage}", micro)
            if needs is not None and needs not in ended:
                continue
            start = max(free[stage], 400 + ended[needs] if needs else 0)
            free[stage] = ended[f"{work}{stage}", micro] = start + (20_000 if work == "F" else 40_000)
            kind = "forward" if work == "F" else "backward"
            done.append([kind, stage, micro, start, free[stage]])
    busy = {"forward": 80_000, "backward": 160_000}
    ranks = [
        {
            "rank": 2 * stage,  # tensor rank 0 of each stage
            "start_us": done[0][3],
            "end_us": done[-1][4],
            "busy_us": busy,
            "spans": done,
            "totals": {"steps": 1, "busy_us": busy, "own_us": free[stage]},
        }
        for stage, done in enumerate(spans)
    ]
    window = max(free)
    data = {"step": step, "schedule": "1f1b", "pp": 2, "microbatches": 4, "virtual_stages": 1}
    data |= {"clock_error_us": 0, "window_us": window, "bubble": window / 240_000 - 1, "ranks": ranks}
    return GangEvent(step, NOW.timestamp(), EventKind.TIMELINE, attempt, "a timeline", data)


def succeeded(session: Session, fabric: Fabric) -> str:
    file = spec("wiki-small", model={"moe": {"experts": 16, "capacity_factor": 1.25}})
    began = NOW - timedelta(hours=3)
    job_id = submitted(session, file, timedelta(hours=3, seconds=9))
    placed(session, job_id, file, fabric, began)
    jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=began)
    training(session, job_id, died_at=46, resumed_at=40, now_at=120, began=began, experts=16)
    end = began + timedelta(minutes=7)
    attempts.end(
        session, job_id, 2, at=end, outcome="succeeded", end_step=120, message="All 120 steps are done."
    )
    kept_logs(session, job_id, 2, 5_000)
    placements.end(session, job_id, 1, now=end)
    placements.release(session, job_id, 1, now=end)
    jobs.set_state(session, job_id, JobState.SUCCEEDED, Reason.COMPLETED, "All 120 steps are done.", now=end)
    return job_id


def failed(session: Session) -> str:
    name = "finetune-instruct-with-a-name-as-long-as-a-name-may-ever-be-63"
    job_id = submitted(session, spec(name), timedelta(hours=2))
    end = NOW - timedelta(hours=1)
    attempts.start(session, job_id, 1, incarnation=1, at=NOW - timedelta(hours=2))
    attempts.end(session, job_id, 1, at=end, outcome="failed", end_step=17, message=TRACEBACK)
    kept_logs(session, job_id, 1, 3)
    jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=NOW - timedelta(hours=2))
    jobs.set_state(session, job_id, JobState.FAILED, Reason.USER_ERROR, TRACEBACK, now=end)
    return job_id


def giant(session: Session) -> str:
    """10,240 ranks on 1,280 nodes: what the drawing must bear."""
    file = spec(
        "giant",
        parallelism={"tp": 8, "pp": 16, "dp": 80, "microbatches": 16},
        model={"layers": 16, "heads": 8, "kv_heads": 8},
        training={"steps": 5000, "global_batch": 1280},
    )
    fabric = Fabric(
        tuple(
            Node(
                name=f"host{i:04d}",
                accelerators=8,
                domains={Tier.ISLAND: f"nv{i:04d}", Tier.LEAF: f"leaf{i // 16:02d}"},
                accelerator="H100",
            )
            for i in range(1_280)
        )
    )
    began = NOW - timedelta(days=3)
    job_id = submitted(session, file, timedelta(days=3, minutes=1))
    placed(session, job_id, file, fabric, began)
    jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=began)
    end = began + timedelta(hours=30)
    placements.end(session, job_id, 1, now=end)
    placements.release(session, job_id, 1, now=end)
    jobs.summarise(session, job_id, {"step": 5000, "loss": 1.87, "tokens_per_s": 4.1e6})
    compared(session, job_id, attempt=1, ranks=10_240, steps=range(4_745, 5_001), slow=7_003, since=4_900)
    jobs.set_state(
        session, job_id, JobState.SUCCEEDED, Reason.COMPLETED, "All 5,000 steps are done.", now=end
    )
    return job_id


if __name__ == "__main__":
    main(sys.argv[1])
