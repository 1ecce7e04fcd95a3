"""Clocks of nodes that differ by minutes change neither what came first nor how long it took."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.lifecycle.clocks import AGREE_S, ahead_s
from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState
from orchestrator.store import metrics
from orchestrator.store.engine import Database
from tests.orchestrator.lifecycle.world import World, spec

NOW = 1_800_000_000.0
MINUTES = 7 * 60.0


@pytest.mark.parametrize("difference_s", [-MINUTES, -AGREE_S, AGREE_S, MINUTES])
def test_a_clock_that_differs_is_known_by_its_answer(difference_s: float) -> None:
    assert ahead_s(NOW + difference_s, NOW) == difference_s


@pytest.mark.parametrize("difference_s", [-4.9, -0.2, 0.0, 0.2, 4.9])
def test_what_may_be_the_way_of_the_answer_is_no_difference(difference_s: float) -> None:
    assert ahead_s(NOW + difference_s, NOW) == 0.0


@pytest.mark.parametrize("ahead_by_s", [-MINUTES, MINUTES])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_history_is_told_by_the_clock_of_the_control_plane(database: Database, ahead_by_s: float) -> None:
    world = World(database)
    poll = world.launcher.poll

    def by_a_wrong_clock(*question: object, **cursors: int) -> object:
        """Each event and step happened a second before it was told."""
        report, told_at = poll(*question, **cursors), world.now.timestamp() + ahead_by_s  # type: ignore[arg-type]
        return replace(
            report,
            told_at=told_at,
            events=tuple(replace(event, at=told_at - 1) for event in report.events),
            steps=tuple(replace(step, at=told_at - 1) for step in report.steps),
        )

    world.launcher.poll = by_a_wrong_clock  # type: ignore[method-assign,assignment]
    began_at = world.now
    job_id = world.submit(spec())
    world.until(lambda: world.state(job_id).is_terminal and world.is_clean())
    assert world.state(job_id) is JobState.SUCCEEDED
    history = world.events(job_id)
    assert EventKind.CHECKPOINT_COMMITTED.value in {event.kind for event in history}
    with database.read() as session:
        steps = metrics.after(session, job_id, limit=100)
    for at in [event.at for event in history] + [step.at for step in steps]:
        assert -1 <= (at - began_at).total_seconds() <= (world.now - began_at).total_seconds()
