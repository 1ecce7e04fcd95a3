"""Where the GPU time of all jobs went between two times, by project."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import or_, select
from sqlalchemy.orm import Session, load_only

from orchestrator.goodput.classes import Ledger, together
from orchestrator.goodput.ledger import ledger
from orchestrator.goodput.stored import histories
from orchestrator.store.stretches import microseconds
from orchestrator.store.tables import Job, Placement


@dataclass(frozen=True, slots=True)
class Totals:
    jobs: int
    """That waited or held GPUs in that time."""
    ledger: Ledger


def totals(session: Session, since: datetime, until: datetime, *, now: datetime) -> Mapping[str, Totals]:
    """By project, in the order of names; `until` is `now` at the latest.

    Time is linear in the jobs of that time; see `stored.histories`.
    """
    found: dict[str, list[Ledger]] = {}
    since_us, until_us = microseconds(since), microseconds(until)
    jobs = _jobs(session, since, until)
    for job, history in zip(jobs, histories(session, jobs, now=now), strict=True):
        part = ledger(history, since_us, until_us)
        if part.total_us:
            found.setdefault(job.project, []).append(part)
    return {project: Totals(len(found[project]), together(found[project])) for project in sorted(found)}


def _jobs(session: Session, since: datetime, until: datetime) -> list[Job]:
    """Those that lived in that time, or held GPUs after their end."""
    columns = (Job.id, Job.state, Job.project, Job.world_size, Job.created_at, Job.finished_at)
    holds = select(Placement.job_id).where(
        or_(Placement.released_at.is_(None), Placement.released_at > since)
    )
    query = select(Job).options(load_only(*columns, raiseload=True)).order_by(Job.id)
    lived = or_(Job.finished_at.is_(None), Job.finished_at > since, Job.id.in_(holds))
    return list(session.scalars(query.where(Job.created_at < until, lived)))
