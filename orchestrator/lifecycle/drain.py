"""Taking a supervisor's report into SQL: rows, effects and cursors in one transaction.

The cursors move in the transaction that inserts what they count. So a kill at any line either leaves both undone, and
the supervisor hands the same over again, or has both done, and it does not: nothing is lost and nothing is doubled.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from orchestrator.lifecycle.decide import Verdict, shown_step
from orchestrator.lifecycle.reports import EventKind, GangEvent, GangReport
from orchestrator.lifecycle.view import JobView
from orchestrator.store import (
    attempts,
    checkpoints,
    events,
    health,
    jobs,
    logs,
    metrics,
    placements,
    timelines,
)


def brings_nothing(job: JobView, report: GangReport, verdict: Verdict) -> bool:
    """True when SQL says all this already, so no transaction is needed."""
    assert job.gang is not None
    return not (
        newer_events(job, report)
        or any(record.seq > job.gang.step_cursor for record in report.steps)
        or report.logs
        or report.health
        or verdict.gang_over
        or (verdict.state, verdict.reason, verdict.message) != (job.state, job.reason, job.message)
        or report.restarts_used != job.restarts
        or shown_step(job, report) != job.step
        or _has_left(job, report)
        or _new_facts(job, report)
    )


def newer_events(job: JobView, report: GangReport) -> list[GangEvent]:
    """Events of the report that SQL has not, in their order."""
    assert job.gang is not None
    cursor = job.gang.event_cursor
    return sorted((event for event in report.events if event.seq > cursor), key=lambda event: event.seq)


def take_in(session: Session, job: JobView, report: GangReport, verdict: Verdict, *, now: datetime) -> bool:
    """Writes all of `report` and the state that follows. False, with nothing written, when `job` is out of date."""
    gang = job.gang
    assert gang is not None
    new_events = newer_events(job, report)
    new_steps = sorted((s for s in report.steps if s.seq > gang.step_cursor), key=lambda s: s.seq)
    reached = (
        new_events[-1].seq if new_events else gang.event_cursor,
        new_steps[-1].seq if new_steps else gang.step_cursor,
    )
    seen = (gang.event_cursor, gang.step_cursor)
    if not placements.advance(session, job.id, gang.incarnation, seen=seen, reached=reached):
        return False
    history = [event for event in new_events if event.kind is not EventKind.TIMELINE]
    events.append_gang(session, job.id, gang.incarnation, history)
    timelines.keep(session, job.id, [event for event in new_events if event.kind is EventKind.TIMELINE])
    metrics.append(session, job.id, gang.incarnation, new_steps)
    summary: dict[str, Any] = {"step": shown_step(job, report), "restarts": report.restarts_used}
    if report.deaths_at_step != (0, 0):
        summary |= {"deaths_step": report.deaths_at_step[0], "deaths_count": report.deaths_at_step[1]}
    if report.spent:
        summary["spent"] = dict(report.spent)
    if new_steps:
        summary["loss"] = metrics.finite(new_steps[-1].loss)
        summary["tokens_per_s"] = metrics.finite(new_steps[-1].tokens_per_s)
    for event in new_events:
        summary |= _effects(session, job.id, gang.incarnation, event, report)
    jobs.summarise(session, job.id, summary)
    if _new_facts(job, report):
        placements.certify(session, job.id, gang.incarnation, report.ranks)
    if _has_left(job, report):
        placements.left(session, job.id, gang.incarnation)
    if report.logs:
        logs.keep(session, job.id, report.logs)
    for told in report.health:
        health.keep(session, job.id, told, at=now)
    jobs.set_state(session, job.id, verdict.state, verdict.reason, verdict.message, now=now)
    if verdict.gang_over:
        end_gang(session, job, verdict, now=now)
    return True


def end_gang(session: Session, job: JobView, verdict: Verdict, *, now: datetime) -> None:
    """The supervisor is over: its placement is reaped from now on, an attempt it left open is closed."""
    assert job.gang is not None
    placements.end(session, job.id, job.gang.incarnation, now=now)
    outcome = verdict.state.value if verdict.state.is_terminal else verdict.reason.value
    attempts.end_open(session, job.id, at=now, outcome=outcome, message=verdict.message)


def _new_facts(job: JobView, report: GangReport) -> bool:
    if job.gang is None or not report.ranks or report.revision != job.gang.revision:
        return False  # those of a placement that has changed since say nothing of it
    return not job.gang.certified or list(job.gang.ranks) != [
        placements.facts_to_json(facts) for facts in report.ranks
    ]


def _has_left(job: JobView, report: GangReport) -> bool:
    """Whether the supervisor has given back what the newest change of its placement left."""
    return job.gang is not None and bool(job.gang.leaving) and report.revision == job.gang.revision


def _effects(
    session: Session, job_id: str, incarnation: int, event: GangEvent, report: GangReport
) -> dict[str, Any]:
    """What an event changes besides the history. Returns summary columns of the job."""
    at = datetime.fromtimestamp(event.at, UTC)
    data = event.data
    match event.kind:
        case EventKind.ATTEMPT_STARTED:
            attempts.end_open(session, job_id, at=at, outcome="replaced", message="The next attempt began.")
            attempts.start(session, job_id, event.attempt, incarnation=incarnation, at=at)
        case EventKind.RESUMED:
            attempts.resumed(session, job_id, event.attempt, step=_number(data, "step"))
        case EventKind.ATTEMPT_ENDED:
            attempts.end(
                session,
                job_id,
                event.attempt,
                at=at,
                outcome=str(data.get("outcome", "ended")),
                end_step=_number(data, "step", otherwise=report.step),
                message=event.message,
            )
        case EventKind.EVALUATED:
            return {"evaluation": {key: data.get(key) for key in ("step", "loss", "unigram_loss")}}
        case EventKind.CHECKPOINT_COMMITTED | EventKind.CHECKPOINT_FAILED | EventKind.CHECKPOINT_SKIPPED:
            _checkpoint(session, job_id, event, at)
        case _:
            pass
    return {}


def _checkpoint(session: Session, job_id: str, event: GangEvent, at: datetime) -> None:
    data = event.data
    if event.kind is EventKind.CHECKPOINT_COMMITTED:
        checkpoints.commit(
            session,
            job_id,
            step=_number(data, "step"),
            attempt=event.attempt,
            path=str(data.get("path", "")),
            size_bytes=_number(data, "bytes"),
            at=at,
        )
    elif event.kind is EventKind.CHECKPOINT_SKIPPED and (step := _skipped_step(data)) is not None:
        checkpoints.damage(session, job_id, [step], str(data.get("reason", event.message)))
    pruned = data.get("pruned", ())
    if isinstance(pruned, list | tuple) and pruned:
        checkpoints.prune(session, job_id, [step for step in pruned if isinstance(step, int)])


def _skipped_step(data: Mapping[str, Any]) -> int | None:
    """Step of a skipped checkpoint: named, or read off its folder's name `step-00000012`."""
    if isinstance(step := data.get("step"), int):
        return step
    number = str(data.get("name", "")).removeprefix("step-")
    return int(number) if number.isdecimal() else None


def _number(data: Mapping[str, Any], key: str, *, otherwise: int = 0) -> int:
    """An integer a rank program said; anything else counts as not said."""
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
