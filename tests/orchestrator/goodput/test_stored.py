"""Histories from SQL, on both databases: what was held, what was lost, and what all jobs of a time add up to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from orchestrator.goodput.classes import Spent
from orchestrator.goodput.cluster import totals
from orchestrator.goodput.ledger import ledger
from orchestrator.goodput.repairs import repairs
from orchestrator.goodput.stored import history_of
from orchestrator.goodput.stretch import STEPS
from orchestrator.lifecycle.reports import EventKind, GangEvent, StepRecord
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.placement import Placement
from orchestrator.spec.job import JobSpec
from orchestrator.store import checkpoints, events, jobs, metrics, placements
from orchestrator.store.engine import Database
from orchestrator.store.tables import StepStretch
from orchestrator.topology.fabric import Fabric, Node, Slot

BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
COST = {"phases_s": {"data": 0.1}, "exposed_s": {"dp": 0.2, "pp": 0.1}}
DECIDED = Placement((Slot("n0", 0), Slot("n0", 1)), (), ("because",))


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def submitted(session: Session, project: str = "default", after_s: float = 0) -> str:
    document = {
        "name": "j",
        "training": {"steps": 9},
        "parallelism": {"dp": 2},
        "queue": {"project": project},
    }
    return jobs.insert(session, JobSpec.model_validate(document), now=at(after_s)).job.id


def placed(
    session: Session,
    job_id: str,
    incarnation: int,
    begin_s: float,
    end_s: float | None,
    decided: Placement = DECIDED,
) -> None:
    placements.insert(
        session,
        job_id,
        incarnation,
        decided,
        Fabric((Node("n0", 2),)),
        first_attempt=1,
        restarts_used=0,
        deaths_at_step=(0, 0),
        now=at(begin_s),
    )
    if end_s is not None:
        placements.release(session, job_id, incarnation, now=at(end_s))


def trained(
    session: Session, job_id: str, attempt: int, first: int, last: int, begin_s: float, seq: int
) -> None:
    """Steps of a second each."""
    numbers = range(first, last + 1)
    records = [
        StepRecord(seq + i, at(begin_s + i + 1).timestamp(), attempt, n, 2.0, 1.0, 1e-3, 10, 1.0, 10.0, COST)
        for i, n in enumerate(numbers)
    ]
    metrics.append(session, job_id, 1, records)


def tell(session: Session, job_id: str, *told: tuple[float, EventKind, int, dict[str, object]]) -> None:
    gang = [
        GangEvent(i, at(after_s).timestamp(), kind, attempt, "said", data)
        for i, (after_s, kind, attempt, data) in enumerate(told, start=1)
    ]
    events.append_gang(session, job_id, 1, gang)


@pytest.fixture
def faulty(database: Database) -> str:
    """Waits 10 s, starts in 5 s, trains 400 steps; a rank dies in step 401; it resumes after step 300 and succeeds with
    step 500 after 650 s. Its slots are free 2 s later."""
    with database.write() as session:
        job_id = submitted(session)
        placed(session, job_id, 1, 10, 652)
        trained(session, job_id, 1, 1, 400, 15, 1)
        trained(session, job_id, 2, 301, 500, 445, 401)
        tell(
            session,
            job_id,
            (15, EventKind.TRAINING_STARTED, 1, {}),
            (420, EventKind.RANK_DIED, 1, {"step": 400, "traceback": "x" * 1000}),
            (422, EventKind.ATTEMPT_ENDED, 1, {"outcome": "signal"}),
            (423, EventKind.REPAIR_STARTED, 1, {"rung": "in-place"}),
            (440, EventKind.RESUMED, 2, {"step": 300}),
            (445, EventKind.TRAINING_STARTED, 2, {}),
            (648, EventKind.ATTEMPT_ENDED, 2, {"outcome": "succeeded"}),
        )
        jobs.set_state(session, job_id, JobState.SUCCEEDED, Reason.COMPLETED, "", now=at(650))
    return job_id


FAULTY = {
    Spent.QUEUED: 2 * 10,
    Spent.START: 2 * (5 + 3 + 2 + 2),
    Spent.USEFUL_COMPUTE: 2 * 500 * 0.6,
    Spent.EXPOSED_COMMUNICATION: 2 * 500 * 0.2,
    Spent.BUBBLE: 2 * 500 * 0.1,
    Spent.DATA_WAIT: 2 * 500 * 0.1,
    Spent.LOST_WORK: 2 * (100 + 1),
    Spent.DETECTION: 2 * (4 + 2),
    Spent.REPAIR: 2 * 23,
}


def seconds(database: Database, job_id: str, now_s: float = 999) -> dict[Spent, float]:
    with database.read() as session:
        found = ledger(history_of(session, jobs.get(session, job_id), now=at(now_s)))
    return {spent: gpu_us / 1e6 for spent, gpu_us in found.gpu_us.items() if gpu_us}


def test_a_job_with_a_fault(database: Database, faulty: str) -> None:
    assert seconds(database, faulty) == pytest.approx(FAULTY, abs=1e-3)
    with database.read() as session:
        history = history_of(session, jobs.get(session, faulty), now=at(999))
    (repair,) = repairs(history.moments, history.stretches, over=True)
    assert (repair.step, repair.rung) == (400, "in-place")
    assert repair.seconds() == pytest.approx(
        {"unnoticed": 5, "settling": 2, "repair": 23, "first-step": 1}, abs=1e-3
    )


def test_its_steps_are_read_as_sums(database: Database, faulty: str) -> None:
    with database.read() as session:
        stored = session.scalar(select(func.count()).select_from(StepStretch))
    assert STEPS == 64
    assert stored == 7 + 4  # 400 steps and 200


def test_steps_from_before_there_were_sums(database: Database, faulty: str) -> None:
    """None at all, as after the migration; and only the newer ones."""
    with database.write() as session:
        session.execute(delete(StepStretch).where(StepStretch.first_id < 300))
    assert seconds(database, faulty) == pytest.approx(FAULTY, abs=1e-3)
    with database.write() as session:
        session.execute(delete(StepStretch))
    assert seconds(database, faulty) == pytest.approx(FAULTY, abs=1e-3)


def test_a_job_that_runs_holds_its_slots_until_now(database: Database) -> None:
    with database.write() as session:
        job_id = submitted(session)
        placed(session, job_id, 1, 10, None)
        tell(session, job_id, (15, EventKind.TRAINING_STARTED, 1, {}))
        trained(session, job_id, 1, 1, 5, 15, 1)
        jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=at(15))
    found = seconds(database, job_id, now_s=20.5)
    assert found[Spent.USEFUL_COMPUTE] == pytest.approx(2 * (5 * 0.6 + 0.5), abs=1e-3)
    assert sum(found.values()) == pytest.approx(2 * 20.5)


def test_a_job_that_dropped_a_replica_lacks_its_gpu_from_then_on(database: Database) -> None:
    """The placement is stored as it is now: one slot. Two were held for 20 s before."""
    now_held = Placement(DECIDED.slots[:1], (), ("because",))
    with database.write() as session:
        job_id = submitted(session)
        placed(session, job_id, 1, 10, None, now_held)
        tell(session, job_id, (15, EventKind.TRAINING_STARTED, 1, {}))
        events.append(session, job_id, EventKind.MOVED, "said", at=at(30), data={"gpus_before": 2, "gpus": 1})
        jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=at(15))
    found = seconds(database, job_id, now_s=50)
    assert found[Spent.DEGRADED] == pytest.approx(20)
    assert found[Spent.QUEUED] == pytest.approx(2 * 10)
    assert sum(found.values()) == pytest.approx(2 * 50)


def test_a_job_that_is_cancelled_keeps_what_was_saved(database: Database) -> None:
    with database.write() as session:
        job_id = submitted(session)
        placed(session, job_id, 1, 0, 30)
        tell(session, job_id, (0, EventKind.TRAINING_STARTED, 1, {}), (20, EventKind.ATTEMPT_ENDED, 1, {}))
        trained(session, job_id, 1, 1, 20, 0, 1)
        jobs.set_state(session, job_id, JobState.CANCELLED, Reason.CANCELLED_BY_USER, "", now=at(25))
    assert seconds(database, job_id) == {Spent.LOST_WORK: 40, Spent.START: 20}
    with database.write() as session:
        checkpoints.commit(session, job_id, step=15, attempt=1, path="", size_bytes=1, at=at(15))
    assert seconds(database, job_id)[Spent.LOST_WORK] == 2 * 5


def test_a_job_that_went_back_has_lost_its_steps_before_it_trains_again(database: Database) -> None:
    with database.write() as session:
        job_id = submitted(session)
        placed(session, job_id, 1, 0, None)
        trained(session, job_id, 1, 1, 10, 0, 1)
        tell(
            session,
            job_id,
            (0, EventKind.TRAINING_STARTED, 1, {}),
            (10, EventKind.RANK_DIED, 1, {"step": 10}),
            (11, EventKind.ATTEMPT_ENDED, 1, {}),
            (15, EventKind.RESUMED, 2, {"step": 6}),
        )
    assert seconds(database, job_id, now_s=20)[Spent.LOST_WORK] == 2 * 4


def test_all_jobs_of_a_time(database: Database, faulty: str) -> None:
    with database.write() as session:
        waits = submitted(session, "vision", after_s=600)
        old = submitted(session, "old", after_s=-500)
        jobs.set_state(session, old, JobState.CANCELLED, Reason.CANCELLED_BY_USER, "", now=at(-100))
    with database.read() as session:
        every = totals(session, at(0), at(700), now=at(700))
        part = totals(session, at(400), at(500), now=at(700))
        later = totals(session, at(651), at(690), now=at(700))
    assert {name: one.jobs for name, one in every.items()} == {"default": 1, "vision": 1}
    assert every["vision"].ledger.gpu_us[Spent.QUEUED] == 2 * 100_000_000
    assert every["default"].ledger.total_us == 2 * 652_000_000
    assert part["default"].ledger.total_us == 2 * 100_000_000
    assert part["default"].ledger.gpu_us[Spent.REPAIR] == 2 * 23_000_000
    assert list(part) == ["default"]
    assert later["default"].ledger.gpu_us == {**dict.fromkeys(Spent, 0), Spent.START: 2_000_000}
    assert waits
