"""How long a page of a list of 10,000 jobs takes over HTTP: `python benchmarks/job_list.py`.

A real server process on SQLite and then on PostgreSQL, one client, one request after the other. The value is the worst
95th percentile over databases and pages, divided by 100 ms: at most 1.0 passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import uuid6
from report import Verdict, conclude
from sqlalchemy import insert

from orchestrator.lifecycle.reports import EventKind
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.spec.parse import parse_spec
from orchestrator.store.engine import open_database
from orchestrator.store.jobs import fingerprint
from orchestrator.store.migrations import upgrade
from orchestrator.store.tables import Event, Job

ROOT = Path(__file__).resolve().parents[1]
BAR_MS = 100.0
WARM_UP = 20
START_DEADLINE_S = 120.0

PAGES: dict[str, dict[str, Any]] = {
    "first page": {},
    "first page, largest": {"limit": 200},
    "filtered, many matches": {"state": "succeeded", "name": "llama"},
    "filtered, few matches among the oldest": {"state": "succeeded", "name": "needle"},
}
"""Queries; the last one has to look at every succeeded job, because its three matches are the oldest."""

_STATES = (
    *(JobState.SUCCEEDED,) * 12,
    *(JobState.FAILED,) * 4,
    *(JobState.CANCELLED,) * 2,
    JobState.RUNNING,
    JobState.QUEUED,
)
_NAMES = ("llama-7b-pretrain", "gpt-ablation", "mixtral-long-context", "llama-tuning", "rotary-study")


def fill(url: str, count: int) -> None:
    """`count` jobs as a busy year leaves them, each with the event of its submission."""
    upgrade(url)
    database = open_database(url)
    began = datetime.now(UTC) - timedelta(days=365)
    for first in range(0, count, 1000):
        rows = [
            _row(number, began + timedelta(seconds=number))
            for number in range(first, min(first + 1000, count))
        ]
        with database.write() as session:
            session.execute(insert(Job), rows)
            session.execute(insert(Event), [_submitted(row) for row in rows])
    database.close()


def _row(number: int, created_at: datetime) -> dict[str, Any]:
    state = JobState.SUCCEEDED if number < 3 else _STATES[number % len(_STATES)]
    name = f"needle-{number}" if number < 3 else f"{_NAMES[number % len(_NAMES)]}-{number}"
    spec = parse_spec({"name": name, "training": {"steps": 1000}}).model_dump(mode="json")
    return {
        "id": str(uuid6.uuid7()),
        "name": name,
        "state": state.value,
        "reason": Reason.NONE.value,
        "message": "Placed under leaf l0; every tensor group in one island.",
        "world_size": 8,
        "plan": "tp2 pp2 dp2",
        "total_steps": 1000,
        "step": number % 1000,
        "loss": 2.5,
        "tokens_per_s": 123_456.7,
        "created_at": created_at,
        "started_at": created_at,
        "finished_at": created_at if state.is_terminal else None,
        "last_event_id": 1,
        "fingerprint": fingerprint(spec),
        "spec": spec,
    }


def _submitted(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "job_id": row["id"],
        "id": 1,
        "at": row["created_at"],
        "kind": EventKind.SUBMITTED.value,
        "message": f"Job {row['name']} was submitted.",
        "data": {},
    }


@contextmanager
def server(url: str) -> Iterator[str]:
    """`python -m api` on the database; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    environment = {**kept, "ATOLL_DATABASE_URL": url, "ATOLL_PORT": str(port), "ATOLL_HOST": "127.0.0.1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "api"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(process, address)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_until_ready(process: subprocess.Popen[bytes], address: str) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: run `python -m api` to see why")
        try:
            if httpx2.get(f"{address}/readyz", trust_env=False).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"the server was not ready after {START_DEADLINE_S:g} s")


def measure(address: str, requests: int) -> dict[str, list[float]]:
    """Milliseconds of each request, by page. The pages take turns, so a busy moment of the machine hits all alike."""
    taken: dict[str, list[float]] = {page: [] for page in PAGES}
    with httpx2.Client(base_url=address, timeout=60, trust_env=False) as client:
        for number in range(WARM_UP + requests):
            for page, query in PAGES.items():
                began = time.perf_counter()
                answer = client.get("/api/v1/jobs", params=query)
                items = answer.raise_for_status().json()["items"]
                milliseconds = (time.perf_counter() - began) * 1000
                if len(items) != (3 if query.get("name") == "needle" else query.get("limit", 50)):
                    raise RuntimeError(f"{page}: {len(items)} jobs in the answer")
                if number >= WARM_UP:
                    taken[page].append(round(milliseconds, 3))
    return taken


def percentile_95(samples: list[float]) -> float:
    return statistics.quantiles(samples, n=20, method="inclusive")[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=200, help="requests a page and database")
    chosen = parser.parse_args()
    sys.path.append(str(ROOT))  # the server that the tests use is in no installed package
    from tests import postgresql_server

    folder = Path(tempfile.mkdtemp(prefix="atoll-job-list-"))
    postgresql = postgresql_server.start()
    samples: dict[str, dict[str, list[float]]] = {}
    try:
        for database, url in (
            ("sqlite", f"sqlite:///{folder / 'atoll.db'}"),
            ("postgresql", postgresql.create_database("job_list")),
        ):
            fill(url, chosen.jobs)
            with server(url) as address:
                samples[database] = measure(address, chosen.requests)
            for page, taken in samples[database].items():
                p50, p95 = statistics.median(taken), percentile_95(taken)
                print(f"{database:10} {page:40} p50 {p50:6.1f} ms  p95 {p95:6.1f} ms", flush=True)
    finally:
        postgresql.stop()
        shutil.rmtree(folder, ignore_errors=True)
    worst = max(percentile_95(taken) for pages in samples.values() for taken in pages.values())
    verdict = Verdict("job_list", "ratio", worst / BAR_MS, 1.0, at_least=False)
    setting = {"jobs": chosen.jobs, "requests": chosen.requests, "pages": PAGES, "bar_ms": BAR_MS}
    return conclude(verdict, setting=setting, samples={"milliseconds": samples})


if __name__ == "__main__":
    raise SystemExit(main())
