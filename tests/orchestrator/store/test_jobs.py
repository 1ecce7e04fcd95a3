"""Jobs in SQL: submitting once, paging, cancelling."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.spec.job import JobSpec
from orchestrator.store import events, jobs
from orchestrator.store.engine import Database
from orchestrator.store.errors import (
    IdempotencyConflictError,
    InvalidCursorError,
    JobAlreadyEndedError,
    JobNotFoundError,
)
from orchestrator.store.tables import Job

NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)


def spec(name: str = "job", steps: int = 5) -> JobSpec:
    return JobSpec.model_validate(
        {"name": name, "training": {"steps": steps}, "parallelism": {"tp": 2, "dp": 4}}
    )


def submit(database: Database, wanted: JobSpec, key: str | None = None) -> jobs.Inserted:
    with database.write() as session:
        return jobs.insert(session, wanted, now=NOW, idempotency_key=key)


def test_a_new_job(database: Database) -> None:
    inserted = submit(database, spec())
    assert inserted.created
    with database.read() as session:
        job = jobs.get(session, inserted.job.id)
        (event,) = events.after(session, job.id)
    assert (job.state, job.reason) == (JobState.QUEUED.value, Reason.WAITING_FOR_CONTROLLER.value)
    assert (job.world_size, job.plan, job.total_steps) == (8, "tp2 dp4", 5)
    assert (job.created_at, job.created_at.tzinfo) == (NOW, UTC)
    assert (event.id, event.kind, event.at) == (1, "submitted", NOW)
    assert job.last_event_id == 1
    assert JobSpec.model_validate(job.spec) == spec()
    assert job.evaluation is None


def test_the_same_key_and_file_give_the_same_job(database: Database) -> None:
    first = submit(database, spec(), "key")
    again = submit(database, spec(), "key")
    assert (again.created, again.job.id) == (False, first.job.id)
    assert submit(database, spec()).created
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(Job)) == 2


def test_the_same_key_with_another_file_is_a_conflict(database: Database) -> None:
    first = submit(database, spec(), "key")
    with pytest.raises(IdempotencyConflictError, match=first.job.id):
        submit(database, spec(steps=6), "key")


def test_one_key_at_once_from_many_threads_makes_one_job(database: Database) -> None:
    together = threading.Barrier(6)
    made: list[jobs.Inserted] = []

    def client() -> None:
        together.wait(60)
        made.append(submit(database, spec(), "key"))

    threads = [threading.Thread(target=client) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == 6
    assert len({inserted.job.id for inserted in made}) == 1
    assert sum(inserted.created for inserted in made) == 1


def test_pages_are_newest_first_and_complete_while_jobs_are_added(database: Database) -> None:
    ids = [submit(database, spec(f"job-{i}")).job.id for i in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        with database.read() as session:
            found = jobs.page(session, limit=3, cursor=cursor)
        seen += [job.id for job in found.items]
        submit(database, spec("late"))
        cursor = found.next_cursor
        if cursor is None:
            break
    assert seen == ids[::-1]


def test_a_full_last_page_has_no_next(database: Database) -> None:
    for i in range(4):
        submit(database, spec(f"job-{i}"))
    with database.read() as session:
        first = jobs.page(session, limit=2)
        last = jobs.page(session, limit=2, cursor=first.next_cursor)
    assert (len(last.items), last.next_cursor) == (2, None)


def test_filters(database: Database) -> None:
    a, b, c = (submit(database, spec(name)).job.id for name in ("alpha", "beta-1", "alphabet"))
    with database.write() as session:
        jobs.set_state(session, b, JobState.RUNNING, Reason.NONE, "", now=NOW)
        jobs.set_state(session, c, JobState.FAILED, Reason.RANK_DIED, "boom", now=NOW)
    with database.read() as session:

        def ids(**filters: object) -> list[str]:
            return [job.id for job in jobs.page(session, limit=10, **filters).items]  # type: ignore[arg-type]

        assert ids(states=[JobState.RUNNING]) == [b]
        assert ids(states=[JobState.RUNNING, JobState.FAILED]) == [c, b]
        assert ids(name_contains="ALPHA") == [c, a]
        assert ids(name_contains="alpha", states=[JobState.QUEUED]) == [a]
        assert ids(name_contains="%") == []
        assert ids(name_contains="_") == []
        assert jobs.count_by_state(session)[JobState.FAILED] == 1
        assert jobs.count_by_state(session)[JobState.CANCELLED] == 0


@pytest.mark.parametrize("cursor", ["", "x", "%%%", "ÿ", "a" * 23, "AAAA", "\0", "ag", "'; DROP TABLE jobs"])
def test_a_made_up_cursor_is_refused(database: Database, cursor: str) -> None:
    with database.read() as session, pytest.raises(InvalidCursorError):
        jobs.page(session, limit=3, cursor=cursor)


@pytest.mark.parametrize("job_id", ["", "nope", "0192f000-0000-7000-8000-000000000000", "\0", "{}", "A" * 36])
def test_an_unknown_job_is_named(database: Database, job_id: str) -> None:
    with database.read() as session, pytest.raises(JobNotFoundError):
        jobs.get(session, job_id)
    with pytest.raises(JobNotFoundError), database.write() as session:
        jobs.request_cancel(session, job_id, now=NOW)


def test_cancelling_twice_is_one_event(database: Database) -> None:
    job_id = submit(database, spec()).job.id
    for _ in range(2):
        with database.write() as session:
            job = jobs.request_cancel(session, job_id, now=NOW)
            assert job.cancel_requested_at == NOW
    with database.read() as session:
        assert [event.kind for event in events.after(session, job_id)] == ["submitted", "cancel-requested"]
        assert jobs.get(session, job_id).state == "queued"  # the controller carries it out


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED])
def test_what_has_ended_cannot_be_cancelled(database: Database, state: JobState) -> None:
    job_id = submit(database, spec()).job.id
    with database.write() as session:
        jobs.set_state(session, job_id, state, Reason.NONE, "", now=NOW)
    with pytest.raises(JobAlreadyEndedError, match=state.value), database.write() as session:
        jobs.request_cancel(session, job_id, now=NOW)


def test_an_ended_job_stays_ended(database: Database) -> None:
    job_id = submit(database, spec()).job.id
    later = NOW + timedelta(seconds=5)
    with database.write() as session:
        assert jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=NOW)
        assert jobs.set_state(session, job_id, JobState.FAILED, Reason.RANK_DIED, "Traceback\nx", now=later)
        assert not jobs.set_state(session, job_id, JobState.RUNNING, Reason.NONE, "", now=later)
    with database.read() as session:
        job = jobs.get(session, job_id)
        assert (job.state, job.message) == ("failed", "Traceback\nx")
        assert (job.started_at, job.finished_at) == (NOW, later)
        said = [event.message for event in events.after(session, job_id)]
    assert said[1:] == ["queued -> running", "running -> failed: Traceback"]


def test_a_failed_transaction_leaves_nothing(database: Database) -> None:
    def submit_and_fail() -> None:
        with database.write() as session:
            jobs.insert(session, spec(), now=NOW)
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        submit_and_fail()
    with database.read() as session:
        assert jobs.page(session, limit=1).items == []
