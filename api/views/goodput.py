"""Ledgers and repairs as bodies of answers."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.schemas.goodput import ClusterGoodput, GoodputView, ProjectGoodput, RepairView
from orchestrator.goodput.classes import together
from orchestrator.goodput.cluster import totals
from orchestrator.goodput.ledger import ledger
from orchestrator.goodput.repairs import Repair, repairs
from orchestrator.goodput.stored import history_of
from orchestrator.store.stretches import EPOCH
from orchestrator.store.tables import Job

REPAIRS = 100
"""Shown of a job."""


def job_goodput(session: Session, job: Job, *, now: datetime) -> GoodputView:
    history = history_of(session, job, now=now)
    found = repairs(history.moments, history.stretches, over=history.over)
    return GoodputView(
        gpus=job.world_size,
        until=job.finished_at or now,
        repairs=[_repair(repair) for repair in found[-REPAIRS:]],
        **ledger(history).to_json(),
    )


def cluster_goodput(session: Session, since: datetime, until: datetime, *, now: datetime) -> ClusterGoodput:
    found = totals(session, since, until, now=now)
    return ClusterGoodput(
        since=since,
        until=until,
        jobs=sum(one.jobs for one in found.values()),
        projects=[
            ProjectGoodput(project=name, jobs=one.jobs, **one.ledger.to_json()) for name, one in found.items()
        ],
        **together(one.ledger for one in found.values()).to_json(),
    )


def _repair(repair: Repair) -> RepairView:
    return RepairView(
        fault=repair.fault,
        message=repair.message.partition("\n")[0],
        attempt=repair.attempt,
        step=repair.step,
        rung=repair.rung,
        last_step_at=_time(repair.last_step_us),
        told_at=EPOCH + timedelta(microseconds=repair.told_us),
        settled_at=_time(repair.settled_us),
        trained_at=_time(repair.trained_us),
        stepped_at=_time(repair.stepped_us),
        given_up=repair.given_up,
        seconds=repair.seconds(),
    )


def _time(at_us: int | None) -> datetime | None:
    return None if at_us is None else EPOCH + timedelta(microseconds=at_us)
