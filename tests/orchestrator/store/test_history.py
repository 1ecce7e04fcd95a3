"""Events, metrics, checkpoints, logs and the values they must survive."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError, StatementError

from orchestrator.lifecycle.reports import EventKind, GangEvent, LogTail, StepRecord
from orchestrator.spec.job import JobSpec
from orchestrator.store import checkpoints, events, jobs, logs, metrics
from orchestrator.store.column_types import storable_json
from orchestrator.store.engine import Database
from orchestrator.store.errors import JobNotFoundError

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        return jobs.insert(
            session, JobSpec.model_validate({"name": "j", "training": {"steps": 3}}), now=NOW
        ).job.id


def gang_event(seq: int, kind: EventKind = EventKind.CERTIFIED, **data: object) -> GangEvent:
    return GangEvent(seq, NOW.timestamp() + seq, kind, 1, f"event {seq}", data)


def record(seq: int, loss: float = 2.0) -> StepRecord:
    return StepRecord(seq, NOW.timestamp(), 1, seq, loss, 1.0, 1e-3, 2**40, 0.5, 128.0)


def test_numbers_of_a_rank_program_are_bounded(database: Database, job_id: str) -> None:
    """On PostgreSQL a step is an INTEGER of 32 bit."""
    huge = 2**70
    with database.write() as session:
        metrics.append(session, job_id, 1, [replace(record(1), step=huge, tokens=-huge)])
        checkpoints.commit(session, job_id, step=huge, attempt=1, path="x", size_bytes=huge, at=NOW)
        checkpoints.damage(session, job_id, [huge], "bad")
        jobs.summarise(session, job_id, {"step": huge})
    with database.read() as session:
        (point,), (kept,) = metrics.after(session, job_id), checkpoints.of_job(session, job_id)
        assert (point.step, point.tokens) == (2**31 - 1, -(2**63) + 1)
        assert (kept.step, kept.bytes, kept.state) == (2**31 - 1, 2**63 - 1, "damaged")
        assert jobs.get(session, job_id).step == 2**31 - 1


def test_event_ids_have_no_gap_whoever_writes(database: Database, job_id: str) -> None:
    def control_plane() -> None:
        for _ in range(10):
            with database.write() as session:
                events.append(session, job_id, EventKind.QUEUED, "waits", at=NOW)

    def supervisor(incarnation: int) -> None:
        for seq in range(1, 20, 2):
            with database.write() as session:
                events.append_gang(session, job_id, incarnation, [gang_event(seq), gang_event(seq + 1)])

    threads = [threading.Thread(target=control_plane)]
    threads += [threading.Thread(target=supervisor, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
    with database.read() as session:
        rows = events.after(session, job_id)
    assert [row.id for row in rows] == list(range(1, 1 + 1 + 10 + 2 * 20))
    for incarnation in (1, 2):
        assert [row.seq for row in rows if row.incarnation == incarnation] == list(range(1, 21))


def test_events_after_a_cursor(database: Database, job_id: str) -> None:
    with database.write() as session:
        events.append_gang(session, job_id, 1, [gang_event(seq) for seq in range(1, 6)])
    with database.read() as session:
        assert [row.id for row in events.after(session, job_id, cursor=2, limit=3)] == [3, 4, 5]
        assert events.after(session, job_id, cursor=6) == []


def test_the_same_event_twice_is_refused_by_the_database(database: Database, job_id: str) -> None:
    with database.write() as session:
        events.append_gang(session, job_id, 1, [gang_event(1)])
    with pytest.raises(IntegrityError), database.write() as session:
        events.append_gang(session, job_id, 1, [gang_event(1)])
    with database.read() as session:
        assert jobs.get(session, job_id).last_event_id == 2


def test_rows_of_no_job_are_refused(database: Database) -> None:
    with pytest.raises(JobNotFoundError), database.write() as session:
        events.append(session, "0192f000-0000-7000-8000-000000000000", EventKind.QUEUED, "x", at=NOW)
    with pytest.raises(IntegrityError), database.write() as session:
        logs.keep(session, "0192f000-0000-7000-8000-000000000000", [LogTail(1, 0, "x", 1)])


def test_metrics_keep_their_numbers_and_lose_what_json_cannot_say(database: Database, job_id: str) -> None:
    with database.write() as session:
        metrics.append(session, job_id, 1, [record(1), record(2, math.nan), record(3, math.inf)])
        metrics.append(session, job_id, 2, [record(1, 0.1)])
    with database.read() as session:
        rows = metrics.after(session, job_id, cursor=1)
        assert [(row.id, row.incarnation, row.loss) for row in rows] == [
            (2, 1, None),
            (3, 1, None),
            (4, 2, 0.1),
        ]
        assert (rows[0].tokens, rows[0].at) == (2**40, NOW)


def test_checkpoints_by_state(database: Database, job_id: str) -> None:
    with database.write() as session:
        for step in (1, 2, 3):
            checkpoints.commit(
                session, job_id, step=step, attempt=1, path=f"s{step}", size_bytes=2**35, at=NOW
            )
        checkpoints.prune(session, job_id, [1])
        checkpoints.damage(session, job_id, [3], "sha256 differs")
        checkpoints.commit(session, job_id, step=3, attempt=2, path="s3.1", size_bytes=1, at=NOW)
    with database.read() as session:
        rows = [
            (row.step, row.attempt, row.state, row.message) for row in checkpoints.of_job(session, job_id)
        ]
    assert rows == [
        (3, 2, "committed", ""),
        (3, 1, "damaged", "sha256 differs"),
        (2, 1, "committed", ""),
        (1, 1, "pruned", ""),
    ]


def test_logs_of_the_newest_attempt_unless_another_is_named(database: Database, job_id: str) -> None:
    with database.write() as session:
        logs.keep(
            session, job_id, [LogTail(1, 0, "old", 3), LogTail(2, 0, "new", 2**33), LogTail(1, 1, "one", 3)]
        )
        logs.keep(session, job_id, [LogTail(1, 0, "again", 5)])
    with database.read() as session:

        def text(rank: int, attempt: int | None = None) -> str | None:
            row = logs.get(session, job_id, rank=rank, attempt=attempt)
            return row.text if row else None

        assert (text(0), text(0, 1), text(1), text(7)) == ("new", "again", "one", None)
        assert logs.attempts_with_logs(session, job_id) == [(1, 2), (2, 1)]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e9, 1e9)
    | st.sampled_from([math.nan, math.inf, -math.inf])
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(message=st.text(st.characters()), data=st.dictionaries(st.text(st.characters()), JSON, max_size=3))
def test_any_text_and_data_a_rank_program_says_can_be_stored(
    database: Database, job_id: str, message: str, data: dict[str, object]
) -> None:
    """NUL, lone surrogates, NaN: PostgreSQL refuses them, so they are cleaned before they get there."""
    with database.write() as session:
        event_id = events.append(session, job_id, EventKind.RANK_DIED, message, at=NOW, data=data)
    with database.read() as session:
        (row,) = events.after(session, job_id, cursor=event_id - 1)
    assert (
        row.message == message.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        or "\ufffd" in row.message
    )
    assert row.data == storable_json(data)


def test_times_are_aware_and_in_utc(database: Database, job_id: str) -> None:
    tokyo = datetime(2026, 5, 4, 12, 0, tzinfo=timezone(timedelta(hours=9)))
    with database.write() as session:
        events.append(session, job_id, EventKind.QUEUED, "x", at=tokyo)
    with database.read() as session:
        at = events.after(session, job_id, cursor=1)[0].at
    assert (at, at.utcoffset()) == (tokyo, timedelta(0))
    with pytest.raises(StatementError, match="no time zone"), database.write() as session:
        events.append(session, job_id, EventKind.QUEUED, "x", at=datetime(2026, 5, 4))
