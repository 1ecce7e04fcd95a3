"""GPU time by project and class for Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.goodput.classes import Ledger, Spent, together
from orchestrator.goodput.cluster import totals
from orchestrator.store.engine import Database

WINDOW = timedelta(hours=1)
PROJECTS = 20
"""Told apart: those with most GPU time. Users name projects, and a label with any number of values is none."""
OTHERS = "(others)"
"""Label of the rest; no project can have this name."""
FRESH_S = 60.0
"""Two scrapes within it are answered by one sum."""


class GoodputCollector(Collector):
    """GPU-seconds of the last hour by project and class, as the database has them; nothing without a database.

    A gauge over a window and no counter: what was useful becomes lost when training goes back, and a counter never
    falls.
    """

    def __init__(self, database: Database, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._found: Mapping[str, Ledger] = {}
        self._until_s = float("-inf")

    def describe(self) -> Iterator[Metric]:
        """Nothing: the registry must not ask the database when the app is made."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        try:
            found = self._newest()
        except SQLAlchemyError:
            return
        family = GaugeMetricFamily(
            "atoll_gpu_seconds_last_hour",
            "GPU-seconds of the last hour by what they were spent on.",
            labels=["project", "class"],
        )
        for project, ledger in found.items():
            for spent in Spent:
                if (seconds := ledger.gpu_seconds(spent)) is not None:
                    family.add_metric([project, spent.value], seconds)
        yield family

    def _newest(self) -> Mapping[str, Ledger]:
        with self._lock:
            if self._clock_s() >= self._until_s:
                now = self._database.now()
                with self._database.read() as session:
                    by_project = totals(session, now - WINDOW, now, now=now)
                self._found = few({project: one.ledger for project, one in by_project.items()})
                self._until_s = self._clock_s() + FRESH_S
            return self._found


def few(ledgers: Mapping[str, Ledger]) -> Mapping[str, Ledger]:
    """The largest ones, and all others as one."""
    largest = sorted(ledgers, key=lambda project: -ledgers[project].total_us)
    found = {project: ledgers[project] for project in sorted(largest[:PROJECTS])}
    if rest := largest[PROJECTS:]:
        found[OTHERS] = together(ledgers[project] for project in rest)
    return found
