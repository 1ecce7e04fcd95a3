"""The queue as people see it: the order of the decisions, and what each project has."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.lifecycle.queueing import Past
from orchestrator.lifecycle.standing import Project, standing
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.lifecycle.view import GangView, JobView
from orchestrator.queue.policy import ProjectPolicy, QueuePolicy
from orchestrator.topology.fabric import Slot

NOW_S = 1_000_000.0
POLICY = QueuePolicy(starvation_s=1000.0, projects={"vision": ProjectPolicy(weight=2.0, quota=8)})


def view(
    name: str,
    *,
    project: str = "default",
    priority: int = 0,
    ago_s: float = 10.0,
    size: int = 2,
    state: JobState = JobState.QUEUED,
    cancelled: bool = False,
    slots: int = 0,
) -> JobView:
    """A job that was submitted `ago_s` seconds ago, and holds `slots` when any."""
    created_at = datetime.fromtimestamp(NOW_S - ago_s, UTC)
    held = tuple(Slot("n0", index) for index in range(slots))
    gang = GangView(1, held, 0.0, True, False, True, (), 0, 0, created_at, None, "") if slots else None
    return JobView(
        name, name, state, Reason.NONE, "", cancelled, 0, 0, (0, 0), 0, project, priority, size, created_at,
        None, gang,
    )  # fmt: skip


def names(views: list[JobView], past: Past | None = None) -> list[str]:
    found = standing(views, past or Past(), POLICY, now_s=NOW_S)
    return [job.view.id for job in found.jobs]


def test_starved_jobs_then_priority_then_share_then_age() -> None:
    """default holds 4 / 1, vision 4 / 2: vision has the smaller share."""
    views = [
        view("holds", slots=4, state=JobState.RUNNING),
        view("sees", slots=4, state=JobState.RUNNING, project="vision"),
        view("older", ago_s=50),
        view("newer", ago_s=20),
        view("vision", ago_s=5, project="vision"),
        view("urgent", ago_s=1, priority=3),
        view("starved", ago_s=1000, priority=-5),
    ]
    assert names(views) == ["starved", "urgent", "vision", "older", "newer"]


def test_time_in_earlier_placements_is_no_waiting() -> None:
    views = [view("ran", ago_s=1500, state=JobState.RECOVERING), view("waited", ago_s=1200)]
    found = standing(views, Past({"ran": 1000.0}), POLICY, now_s=NOW_S)
    assert [(job.view.id, job.waited_s, job.starved) for job in found.jobs] == [
        ("waited", 1200.0, True),
        ("ran", 500.0, False),
    ]


def test_only_jobs_that_wait_are_listed() -> None:
    views = [view("cancelled", cancelled=True), view("runs", slots=2, state=JobState.RUNNING), view("waits")]
    assert names(views) == ["waits"]


def test_projects_with_what_they_hold_and_want() -> None:
    views = [
        view("sees", slots=4, state=JobState.RUNNING, project="vision"),
        view("more", project="vision", size=6),
        view("waits", size=3),
    ]
    found = standing(views, Past(use={"vision": 2.0, "gone": 1.5}), POLICY, now_s=NOW_S)
    assert found.projects == [
        Project("default", 1.0, None, 0, 0.0, 0.0, 1, 3),
        Project("gone", 1.0, None, 0, 1.5, 1.5, 0, 0),
        Project("vision", 2.0, 8, 4, 2.0, 3.0, 1, 6),
    ]
