"""Health in the store: what was told last, and the newest blocks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.heat import HeatBlock
from orchestrator.lifecycle.reports import HealthReport
from orchestrator.spec.job import JobSpec
from orchestrator.store import health, jobs
from orchestrator.store.engine import Database

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
SLOW = Finding(
    attempt=1,
    category=Category.STRAGGLER,
    kind="onset",
    subject="rank 5",
    ranks=(5,),
    nodes=("n2",),
    from_step=100,
    to_step=199,
    factor=1.3,
    cost_s=8.0,
    step_cost_s=0.08,
    confidence=0.95,
    ongoing=True,
    clock=Clock.WALL,
    sentence="Rank 5 is slow.",
)
TREND = replace(SLOW, category=Category.WATCH, kind="trend", subject="trend rank 1", ranks=(1,), from_step=1)


def block(number: int, attempt: int = 1) -> HeatBlock:
    return HeatBlock(attempt, number, 8, 1, ((1, 1, 1), (2, 3, 2)), (0.1, 0.2, 0.3), ("AAA=", "AAA=", "AAA="))


def told(*findings: Finding, attempt: int = 1, blocks: tuple[HeatBlock, ...] = ()) -> HealthReport:
    return HealthReport(attempt, Clock.WALL, findings, blocks)


@pytest.fixture
def job_id(database: Database) -> str:
    spec = JobSpec.model_validate({"name": "j", "training": {"steps": 3}})
    with database.write() as session:
        return jobs.insert(session, spec, now=NOW).job.id


def keep(database: Database, job_id: str, report: HealthReport) -> None:
    with database.write() as session:
        health.keep(session, job_id, report, at=NOW + timedelta(seconds=1))


def test_a_finding_grows_and_one_that_is_said_no_more_goes(database: Database, job_id: str) -> None:
    keep(database, job_id, told(SLOW, TREND))
    grown = replace(SLOW, to_step=250, cost_s=12.0, ongoing=False)
    second_time = replace(SLOW, from_step=300)
    keep(database, job_id, told(grown, second_time))
    with database.read() as session:
        assert list(health.findings_of(session, job_id)) == [grown, second_time]


def test_attempts_are_kept_apart_newest_first(database: Database, job_id: str) -> None:
    keep(database, job_id, told(SLOW))
    later = replace(SLOW, attempt=2, from_step=7)
    keep(database, job_id, told(later, attempt=2))
    with database.read() as session:
        assert list(health.findings_of(session, job_id)) == [later, SLOW]
        assert list(health.findings_of(session, job_id, attempt=1)) == [SLOW]


def test_the_newest_blocks_are_kept_and_a_block_grows(database: Database, job_id: str) -> None:
    for number in range(health.BLOCKS_KEPT + 3):
        keep(database, job_id, told(blocks=(block(number),)))
    with database.read() as session:
        found = health.blocks_of(session, job_id)
        assert [one.number for one in found] == list(range(3, health.BLOCKS_KEPT + 3))
        assert found[0] == block(3)
    grown = replace(block(0, attempt=2), steps=((1, 1, 1),))
    keep(database, job_id, told(attempt=2, blocks=(block(0, attempt=2),)))
    keep(database, job_id, told(attempt=2, blocks=(grown,)))
    with database.read() as session:
        assert list(health.blocks_of(session, job_id)) == [grown]
        assert list(health.attempts_with_heat(session, job_id)) == [2, 1]


def test_blame_is_of_one_node(database: Database, job_id: str) -> None:
    link = replace(SLOW, kind="link", subject="link 2-6", ranks=(2, 6), nodes=("n1", "n3"))
    keep(database, job_id, told(SLOW, link, TREND))
    with database.read() as session:
        assert health.stragglers_by_node(session) == {"n2": [(job_id, SLOW)]}
