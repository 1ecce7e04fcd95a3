"""Timelines: the schedule of one step as the ranks of one pipeline ran it."""

from __future__ import annotations

from datetime import datetime

from api.schemas.jobs import Body
from orchestrator.lifecycle.timeline import RankTimeline
from orchestrator.spec.sections import PipelineSchedule


class TimelineSummary(Body):
    attempt: int
    step: int
    at: datetime
    bubble: float
    """Measured: idle time of a rank / ideal time, mean over ranks. Stages of unlike length count as idleness too."""
    theory: float
    """The same by the schedule's formula, for stages of equal length and communication that takes no time."""


class TimelineList(Body):
    items: list[TimelineSummary]
    """Newest first; a job keeps the newest few."""


class TimelineView(TimelineSummary):
    schedule: PipelineSchedule
    pp: int
    microbatches: int
    virtual_stages: int
    clock_error_us: int | None
    """Largest error, microseconds, of a time against another rank's: 0 on one host, half a round trip between hosts.
    Null: the hosts' clocks could not be compared, so ranks are drawn as if they had begun the step together."""
    window_us: int
    """From the first work of any rank to the end of the last, microseconds."""
    ranks: list[RankTimeline]
    """The ranks with tp, cp and dp 0, in the order of the pipeline. Times are microseconds from the first work."""
