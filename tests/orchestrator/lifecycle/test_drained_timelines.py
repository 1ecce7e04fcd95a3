"""Timelines on their way into SQL: a table of their own, and the cursor passes them."""

from __future__ import annotations

import pytest

from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState
from orchestrator.store import timelines
from orchestrator.store.engine import Database
from tests.orchestrator.lifecycle.world import World, spec

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_a_timeline_is_no_part_of_the_history(database: Database) -> None:
    world = World(database)
    job_id = world.submit(spec(steps=6))
    world.until(lambda: world.state(job_id) is JobState.RUNNING)
    busy = {"forward": 50}
    totals = {"steps": 1, "busy_us": busy, "own_us": 50}
    rank = {"rank": 0, "start_us": 0, "end_us": 50, "busy_us": busy, "spans": [], "totals": totals}
    gang = world.cluster.only_gang()
    gang.say(
        EventKind.TIMELINE,
        "said",
        step=2,
        schedule="1f1b",
        pp=1,
        microbatches=1,
        virtual_stages=1,
        clock_error_us=0,
        window_us=50,
        bubble=0.0,
        ranks=[rank],
    )
    gang.say(EventKind.TIMELINE, "no timeline", step=3)
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert "timeline" not in world.kinds(job_id)
    with database.read() as session:
        assert [row.step for row in timelines.of_job(session, job_id)] == [2]
    (placement,) = world.placements(job_id)
    assert placement.event_cursor == len(gang.events)
