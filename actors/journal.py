"""What a supervisor has to tell the control plane: events and step records, numbered, drained by cursor.

Events are never dropped; of timelines the newest keep their data. Step records are dropped once a cursor has passed
them; while no control plane drains, the older ones are thinned evenly when there are too many: curves get coarser, they
do not break off.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.lifecycle.cost import step_cost
from orchestrator.lifecycle.reports import EventKind, GangEvent, StepRecord
from orchestrator.lifecycle.said import LARGEST_COUNT, LARGEST_STEP, real, whole

STEPS_KEPT = 100_000
PAGE = 5_000
"""Events, and step records, handed over in one answer."""
TIMELINES_KEPT = 8
"""Timelines whose data waits for a control plane that does not drain; up to 300 kB each."""


class Journal:
    def __init__(self) -> None:
        self._events: list[GangEvent] = []
        self._steps: list[StepRecord] = []
        self._timelines: deque[int] = deque()
        """Where in `_events` the timelines that have their data are."""
        self._last_step_seq = 0
        self._stride = 1
        """Spacing of the older records that are kept while nobody drains."""

    def event(
        self,
        kind: EventKind,
        attempt: int,
        message: str,
        data: Mapping[str, Any] | None = None,
        at: float | None = None,
    ) -> None:
        self._events.append(
            GangEvent(len(self._events) + 1, at or time.time(), kind, attempt, message, dict(data or {}))
        )
        if kind is EventKind.TIMELINE:
            self._timelines.append(len(self._events) - 1)
            if len(self._timelines) > TIMELINES_KEPT:
                oldest = self._timelines.popleft()
                self._events[oldest] = replace(self._events[oldest], data={})

    def step(self, attempt: int, record: Mapping[str, Any], at: float) -> int:
        """Keeps a rank's record of a finished step; returns the step."""
        self._last_step_seq += 1
        step = whole(record["step"], LARGEST_STEP)
        seconds, tokens = real(record["step_time_s"]), whole(record["tokens"], LARGEST_COUNT)
        self._steps.append(
            StepRecord(
                seq=self._last_step_seq,
                at=at,
                attempt=attempt,
                step=step,
                loss=real(record["loss"]),
                grad_norm=real(record["grad_norm"]),
                learning_rate=real(record["learning_rate"]),
                tokens=tokens,
                step_time_s=seconds,
                tokens_per_s=tokens / seconds if seconds > 0 else 0.0,
                cost=step_cost(record.get("cost")),
            )
        )
        if len(self._steps) > STEPS_KEPT:
            self._thin()
        return step

    def _thin(self) -> None:
        """Keeps the newest half whole and of the others every n-th, n the power of two with which they fit."""
        newest = STEPS_KEPT // 2
        older = self._steps[:-newest]
        while len(older := [record for record in older if record.seq % self._stride == 0]) > newest // 2:
            self._stride *= 2
        self._steps = older + self._steps[-newest:]

    def events_after(self, cursor: int) -> tuple[GangEvent, ...]:
        return tuple(self._events[max(0, cursor) : max(0, cursor) + PAGE])

    def steps_after(self, cursor: int) -> tuple[StepRecord, ...]:
        """Records newer than `cursor`; those up to it are the control plane's now and are dropped."""
        self._steps = [record for record in self._steps if record.seq > cursor]
        if len(self._steps) <= PAGE:
            self._stride = 1
        return tuple(self._steps[:PAGE])

    def drained(self, events: tuple[GangEvent, ...], steps: tuple[StepRecord, ...], cursor: int) -> bool:
        """True when nothing newer than this answer is left."""
        newest_event = events[-1].seq if events else cursor
        return newest_event >= len(self._events) and (not steps or steps[-1].seq == self._last_step_seq)
