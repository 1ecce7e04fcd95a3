"""Numbers for Prometheus. One registry an app, so that two apps in one process do not meet."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from api.goodput_metrics import GoodputCollector
from api.version import build_information
from api.views.cluster import count_slots
from orchestrator.lifecycle.states import JobState
from orchestrator.store import jobs
from orchestrator.store.engine import Database

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Telemetry:
    def __init__(self, database: Database) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "atoll_http_requests_total",
            "HTTP requests by route template and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._latency = Histogram(
            "atoll_http_request_seconds",
            "Seconds until the answer began.",
            ("method", "route"),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self.streams = Gauge("atoll_http_streams_open", "Open event streams.", registry=self.registry)
        build = Gauge(
            "atoll_build_info", "1; the labels say what runs.", ("version", "python"), registry=self.registry
        )
        information = build_information()
        build.labels(information.version, information.python).set(1)
        self.registry.register(_StoredState(database))
        self.registry.register(GoodputCollector(database))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in _METHODS else "other"  # clients may send any word; labels stay few
        self._requests.labels(known, route, str(status)).inc()
        self._latency.labels(known, route).observe(seconds)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


class _StoredState(Collector):
    """Jobs and slots as the database has them at scrape time; without a database only `atoll_database_up 0`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def describe(self) -> Iterator[Metric]:
        """Nothing: the registry must not ask the database when the app is made."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        try:
            with self._database.read() as session:
                counts = jobs.count_by_state(session)
                slots = count_slots(session)
        except SQLAlchemyError:
            yield GaugeMetricFamily("atoll_database_up", "Whether the database answers.", value=0)
            return
        yield GaugeMetricFamily("atoll_database_up", "Whether the database answers.", value=1)
        by_state = GaugeMetricFamily("atoll_jobs", "Jobs by state.", labels=["state"])
        for state in JobState:
            by_state.add_metric([str(state)], counts[state])
        yield by_state
        yield GaugeMetricFamily("atoll_slots", "Accelerators of living nodes.", value=slots.total)
        yield GaugeMetricFamily("atoll_slots_free", "Accelerators no job holds.", value=slots.free)
