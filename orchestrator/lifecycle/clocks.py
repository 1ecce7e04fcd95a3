"""Times that others told, by the clock of the one who hears them: clocks of machines may differ by minutes.

A time is shifted by what the teller's clock is ahead at the moment of telling. Whoever decides what came first, and how
long it took, so compares times of one clock.
"""

from __future__ import annotations

from dataclasses import replace

from orchestrator.lifecycle.reports import GangReport

AGREE_S = 5.0
"""Clocks that seem to differ by less are taken as they are: an answer may have been on its way as long."""


def ahead_s(told_at: float, heard_at: float) -> float:
    """How far the clock by which an answer was given `told_at` is ahead of the one that says `heard_at` at its arrival;
    0 for clocks that agree. UTC seconds since 1970."""
    difference_s = told_at - heard_at
    return difference_s if abs(difference_s) >= AGREE_S else 0.0


def by_our_clock(report: GangReport, heard_at: float) -> GangReport:
    """`report`, heard at `heard_at`, with every time of its events and steps by our clock."""
    shift_s = 0.0 if report.told_at is None else ahead_s(report.told_at, heard_at)
    if shift_s == 0.0:
        return report
    return replace(
        report,
        told_at=heard_at,
        events=tuple(replace(event, at=event.at - shift_s) for event in report.events),
        steps=tuple(replace(step, at=step.at - shift_s) for step in report.steps),
    )
