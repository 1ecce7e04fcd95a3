"""Health on its way into SQL: the state told last, also when nothing else is new."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.heat import HeatBlock
from orchestrator.lifecycle.reports import HealthReport
from orchestrator.lifecycle.states import JobState
from orchestrator.store import health
from orchestrator.store.engine import Database
from tests.orchestrator.lifecycle.world import World, spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

SLOW = Finding(
    attempt=1,
    category=Category.STRAGGLER,
    kind="onset",
    subject="rank 1",
    ranks=(1,),
    nodes=("n0",),
    from_step=2,
    to_step=3,
    factor=1.3,
    cost_s=0.2,
    step_cost_s=0.1,
    confidence=0.9,
    ongoing=True,
    clock=Clock.CPU,
    sentence="Rank 1 is slow.",
)
BLOCK = HeatBlock(1, 0, 8, 1, ((1, 3, 3),), (0.1, 0.1, 0.1), ("AAA=", "AAA=", "AAA="))


def test_what_is_told_last_is_stored(database: Database) -> None:
    world = World(database)
    job_id = world.submit(spec(steps=6))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    gang = world.cluster.only_gang()
    gang.still = True
    grown = replace(SLOW, to_step=9, cost_s=0.9)

    def stored() -> list[Finding]:
        with database.read() as session:
            return list(health.findings_of(session, job_id))

    for found in (SLOW, grown):
        gang.health = (HealthReport(1, Clock.CPU, (found,), (BLOCK,)),)
        world.until(lambda found=found: stored() == [found])
    with database.read() as session:
        assert list(health.blocks_of(session, job_id)) == [BLOCK]
    gang.still, gang.health = False, ()
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert stored() == [grown]
