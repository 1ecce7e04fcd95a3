"""Feeds what the ranks measure to the detector of stragglers, writes what is new into the journal, and keeps what the
control plane is to show.

The supervisor does this, not the controller: it has the measurements already, goes on while the control plane is down,
and what leaves it is bounded by findings and columns, not by ranks and steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import structlog

from orchestrator.health.finding import Category, Finding
from orchestrator.health.live import LiveHealth
from orchestrator.health.news import News, NewsDesk, Turn
from orchestrator.health.policy import Replacement, replacement
from orchestrator.lifecycle.reports import EventKind, HealthReport
from orchestrator.placement.mesh import Mesh
from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Slot

log = structlog.get_logger(__name__)

REPAIR_S = 60.0
"""What doing without a node is taken to cost until an attempt has been started: ranks save and end, others start from
the checkpoint."""
TOLD_EVERY_S = 3.0
"""Between two reports of the state: findings grow all the time."""

Tell = Callable[[EventKind, str, Mapping[str, Any]], None]


class HealthWatch:
    """Of all attempts of a supervisor. `tell` writes an event of the attempt that runs."""

    def __init__(self, tell: Tell, spec: JobSpec) -> None:
        self._tell = tell
        self._spec = spec
        self._advised: set[str] = set()
        """Nodes that were told to be worth replacing."""
        self._live: LiveHealth | None = None
        self._desk = NewsDesk()
        self._findings: tuple[Finding, ...] = ()
        self._ended: list[HealthReport] = []
        """Of attempts before, which have not been told."""
        self._changed = False
        self._told_at_s = -TOLD_EVERY_S
        self._repair_s = REPAIR_S
        self.unwanted: Replacement | None = None
        """The node that the job would go on without, as long as that is so."""

    def begin(self, attempt: int, slots: Sequence[Slot], *, start_s: float = REPAIR_S) -> None:
        """Fresh ranks: what was learned of others says nothing about them. They took `start_s` from their order to
        the moment that all were ready, and so will the next."""
        self._end_attempt()
        self._repair_s = start_s
        mesh = Mesh.of(self._spec.parallelism)
        self._live = LiveHealth(attempt, mesh, [slot.node for slot in slots])
        self._desk = NewsDesk()
        self._findings = ()

    def take(self, data: Mapping[str, Any]) -> None:
        """Data of a note of kind `phases`."""
        if self._live is None:
            return
        try:
            if not self._live.take(data["rows"]) or self._live.clock is None:
                return
            self._findings = self._live.findings()
        except Exception:
            # A defect of ours. Training goes on without being watched: it must not end for it.
            log.exception("health-watch-failed", attempt=self._live.attempt)
            self._live = None
            return
        self._changed = True
        for news in self._desk.news(self._findings):
            self._tell(_kind(news), news.sentence, news.finding.to_json())
        self._advise(self._live.step)

    def _advise(self, step: int) -> None:
        self.unwanted = chosen = replacement(
            self._spec.health.stragglers,
            self._findings,
            step=step,
            total_steps=self._spec.training.steps,
            repair_s=self._repair_s,
        )
        if chosen is not None and chosen.node not in self._advised:
            self._advised.add(chosen.node)
            sentence = f"Node {chosen.node} is worth replacing: {chosen.reason}."
            self._tell(EventKind.REPLACEMENT_ADVISED, sentence, asdict(chosen))

    def reports(self, *, at_once: bool) -> tuple[HealthReport, ...]:
        """The state of each attempt that has changed, when it is time to tell it; `at_once`: now or never."""
        now = time.monotonic()
        if not at_once and now - self._told_at_s < TOLD_EVERY_S:
            return ()
        self._told_at_s = now
        running = [report] if self._changed and (report := self._report()) is not None else []
        self._changed = at_once and self._changed
        told = (*self._ended, *running)
        self._ended = self._ended if at_once else []
        return told

    def _end_attempt(self) -> None:
        self.unwanted = None
        report = self._report() if self._changed else None
        self._changed = False
        if report is not None:
            self._ended = [*self._ended, report][-2:]

    def _report(self) -> HealthReport | None:
        if self._live is None or self._live.clock is None:
            return None
        return HealthReport(self._live.attempt, self._live.clock, self._findings, tuple(self._live.heat()))


def _kind(news: News) -> EventKind:
    if news.finding.category is Category.IMBALANCE:
        return EventKind.IMBALANCE
    return EventKind.STRAGGLER if news.turn is Turn.FOUND else EventKind.STRAGGLER_RECOVERED
