"""The queue as people see it: waiting jobs in the order in which they are looked at, and what each project has.

The order is `queue.order.in_order`, which decides; here it is asked of what SQL says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.lifecycle.queueing import Past
from orchestrator.lifecycle.view import JobView
from orchestrator.queue.claims import Claim, Waiting
from orchestrator.queue.order import Shares, has_starved, in_order
from orchestrator.queue.policy import QueuePolicy


@dataclass(frozen=True, slots=True)
class WaitingJob:
    view: JobView
    waited_s: float
    """In the queue, also before earlier placements."""
    starved: bool
    """It has waited so long that it goes before all that have not."""


@dataclass(frozen=True, slots=True)
class Project:
    name: str
    weight: float
    quota: int | None
    held: int
    """Accelerators its jobs hold now."""
    use: float
    """Accelerators it held lately: a mean over the past."""
    share: float
    """(held + use) / weight: the smaller one goes first."""
    waiting_jobs: int
    wanted: int
    """Accelerators that its waiting jobs ask for."""


@dataclass(frozen=True, slots=True)
class Standing:
    jobs: Sequence[WaitingJob]
    projects: Sequence[Project]
    """Those of the policy and those that have a job or a use, by name."""


def waits(view: JobView) -> bool:
    return view.waits_for_placement and not view.cancel_requested


def standing(views: Sequence[JobView], past: Past, policy: QueuePolicy, *, now_s: float) -> Standing:
    """`views`: every job that has not ended or still holds accelerators. `now_s`: seconds since 1970."""
    held, wanted, count = Counter[str](), Counter[str](), Counter[str]()
    for view in views:
        if view.gang is not None:
            held[view.project] += len(view.gang.slots)
        elif waits(view):
            wanted[view.project] += view.size
            count[view.project] += 1
    shares = Shares(policy, held, past.use)
    by_id = {view.id: view for view in views}
    ordered = in_order([_waiting(view, past, now_s) for view in views if waits(view)], shares, policy)
    jobs = [
        WaitingJob(by_id[job.claim.job_id], job.waited_s, has_starved(job.waited_s, policy))
        for job in ordered
    ]
    projects = [
        Project(
            name,
            policy.project(name).weight,
            policy.project(name).quota,
            held[name],
            past.use.get(name, 0.0),
            shares.of(name),
            count[name],
            wanted[name],
        )
        for name in sorted({*policy.projects, *held, *wanted, *past.use})
    ]
    return Standing(jobs, projects)


def _waiting(view: JobView, past: Past, now_s: float) -> Waiting:
    submitted_s, held_s = view.created_at.timestamp(), past.held_s.get(view.id, 0.0)
    claim = Claim(view.id, view.name, view.project, view.priority, view.size, None, False, 0.0)
    return Waiting(claim, submitted_s, max(0.0, now_s - submitted_s - held_s), held_s)
