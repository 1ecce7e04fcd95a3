"""The client of Atoll's REST API. It speaks HTTP and nothing else.

from atoll.client import AtollClient

with AtollClient("http://127.0.0.1:8750") as atoll:
    job = atoll.submit({"name": "first", "training": {"steps": 100}})
    job = atoll.wait(job.id)
    print(job.state, job.evaluation)
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

from pydantic import ValidationError

from atoll.answers import (
    Answer,
    Blame,
    CheckpointList,
    Cluster,
    ClusterGoodput,
    Cordon,
    Event,
    EventPage,
    Goodput,
    Health,
    HeatMap,
    JobDetail,
    JobPage,
    JobSummary,
    Log,
    LogPiece,
    Metric,
    MetricPage,
    PlanAnswer,
    Timeline,
    TimelineList,
)
from atoll.errors import AmbiguousReferenceError, JobNotFoundError, NotAtollError
from atoll.transport import Transport

DEFAULT_URL = "http://127.0.0.1:8750"
PAGE = 200
LOG_CHUNK_BYTES = 256 * 1024

A = TypeVar("A", bound=Answer)


class AtollClient:
    """One Atoll server.

    Calls raise `ProblemError` when the server refuses, `ServerUnreachableError` when it does not answer within
    `retry_budget_s` seconds, and `NotAtollError` when something else answers. Every call is safe to repeat, so every
    call is retried: a submission carries an Idempotency-Key, and the server makes one job of any number of copies.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        token: str | None = None,
        *,
        timeout_s: float = 15.0,
        retry_budget_s: float = 10.0,
    ) -> None:
        self._transport = Transport(url, token, timeout_s=timeout_s, retry_budget_s=retry_budget_s)

    @property
    def url(self) -> str:
        return self._transport.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    # Jobs

    def submit(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None) -> JobSummary:
        """Submits a job. Give `idempotency_key` to make submissions of several processes one job."""
        key = idempotency_key or uuid.uuid4().hex
        answer = self._transport.request(
            "POST", "/api/v1/jobs", body=dict(spec), headers={"Idempotency-Key": key}
        )
        return self._typed(JobSummary, answer)

    def jobs(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> JobPage:
        """One page of jobs, newest first."""
        params = {"state": state, "name": name, "limit": limit, "cursor": cursor}
        return self._typed(JobPage, self._transport.request("GET", "/api/v1/jobs", params=params))

    def all_jobs(
        self, *, state: str | None = None, name: str | None = None, page: int = PAGE
    ) -> Iterator[JobSummary]:
        """Every job, newest first, page by page."""
        cursor: str | None = None
        while True:
            found = self.jobs(state=state, name=name, limit=page, cursor=cursor)
            yield from found.items
            cursor = found.next_cursor
            if cursor is None:
                return

    def job(self, job_id: str) -> JobDetail:
        return self._typed(JobDetail, self._transport.request("GET", f"/api/v1/jobs/{job_id}"))

    def resolve(self, reference: str) -> str:
        """The id that `reference` means: an id, a unique prefix of one, or the name of exactly one job."""
        if is_job_id(reference):
            return str(uuid.UUID(reference))
        found = {job.id: job for job in self._with_prefix(reference.lower())}
        if is_job_name(reference):
            found |= {job.id: job for job in self.all_jobs(name=reference) if job.name == reference}
        if not found:
            raise JobNotFoundError(
                f"no job has the id, id prefix or name {reference!r}; `atoll list` shows all jobs"
            )
        if len(found) > 1:
            shown = "".join(f"\n  {job.id}  {job.name}  {job.state}" for job in islice(found.values(), 5))
            more = f"\n  and {len(found) - 5} more" if len(found) > 5 else ""
            raise AmbiguousReferenceError(
                f"{reference!r} means {len(found)} jobs; give a whole id:{shown}{more}"
            )
        return next(iter(found))

    def _with_prefix(self, prefix: str) -> Iterator[JobSummary]:
        """Jobs whose id begins so. Ids sort by age and the list is newest first, so the search ends early."""
        if not prefix or not set(prefix) <= set("0123456789abcdef-"):
            return
        for job in self.all_jobs():
            if job.id.startswith(prefix):
                yield job
            elif job.id < prefix:
                return

    def cancel(self, job_id: str) -> JobSummary:
        """Asks for the end of the job; it is over when its state is terminal."""
        return self._typed(JobSummary, self._transport.request("POST", f"/api/v1/jobs/{job_id}/cancel"))

    def wait(self, job_id: str, *, poll_s: float = 0.5, timeout_s: float | None = None) -> JobDetail:
        """Blocks until the job has ended. TimeoutError after `timeout_s` seconds."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            job = self.job(job_id)
            if job.is_terminal:
                return job
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"job {job_id} is still {job.state} after {timeout_s} s")
            time.sleep(poll_s)

    def checkpoints(self, job_id: str) -> CheckpointList:
        """Checkpoints the job has written, newest step first, deleted and damaged ones included."""
        return self._typed(
            CheckpointList, self._transport.request("GET", f"/api/v1/jobs/{job_id}/checkpoints")
        )

    # History

    def events(self, job_id: str, *, after: int = 0, limit: int = PAGE) -> EventPage:
        params = {"after": after, "limit": limit}
        return self._typed(
            EventPage, self._transport.request("GET", f"/api/v1/jobs/{job_id}/events", params=params)
        )

    def all_events(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        cursor: int | None = after
        while cursor is not None:
            page = self.events(job_id, after=cursor)
            yield from page.items
            cursor = page.next_cursor

    def follow_events(self, job_id: str, *, after: int = 0) -> Iterator[Event]:
        """Events from `after` on, each once, until the job has ended and all were given; reconnects by itself."""
        for document in self._transport.follow(f"/api/v1/jobs/{job_id}/events/stream", last_id=str(after)):
            yield self._typed(Event, document)

    def metrics(self, job_id: str, *, after: int = 0, limit: int = PAGE) -> MetricPage:
        params = {"after": after, "limit": limit}
        return self._typed(
            MetricPage, self._transport.request("GET", f"/api/v1/jobs/{job_id}/metrics", params=params)
        )

    def all_metrics(self, job_id: str, *, after: int = 0) -> Iterator[Metric]:
        cursor: int | None = after
        while cursor is not None:
            page = self.metrics(job_id, after=cursor)
            yield from page.items
            cursor = page.next_cursor

    def follow_metrics(self, job_id: str, *, after: int = 0) -> Iterator[Metric]:
        """Finished steps from `after` on, each once, until the job has ended; reconnects by itself."""
        for document in self._transport.follow(f"/api/v1/jobs/{job_id}/metrics/stream", last_id=str(after)):
            yield self._typed(Metric, document)

    def timelines(self, job_id: str) -> TimelineList:
        """Steps whose schedule is kept as it ran, newest first."""
        return self._typed(TimelineList, self._transport.request("GET", f"/api/v1/jobs/{job_id}/timelines"))

    def timeline(self, job_id: str, *, step: int | None = None, attempt: int | None = None) -> Timeline:
        """The schedule of one step as one pipeline ran it; of the newest step kept when `step` is None."""
        params = {"step": step, "attempt": attempt}
        return self._typed(
            Timeline, self._transport.request("GET", f"/api/v1/jobs/{job_id}/timeline", params=params)
        )

    def goodput(self, job_id: str) -> Goodput:
        """Every GPU-second of a job since its submission, in exactly one class, and its repairs."""
        return self._typed(Goodput, self._transport.request("GET", f"/api/v1/jobs/{job_id}/goodput"))

    def health(self, job_id: str, *, attempt: int | None = None) -> Health:
        """Which ranks, nodes and links are slow; of all attempts when `attempt` is None."""
        params = {"attempt": attempt}
        return self._typed(
            Health, self._transport.request("GET", f"/api/v1/jobs/{job_id}/health", params=params)
        )

    def heat_map(self, job_id: str, *, attempt: int | None = None) -> HeatMap:
        """Computing and waiting by rank and step; of the newest attempt when `attempt` is None."""
        params = {"attempt": attempt}
        return self._typed(
            HeatMap, self._transport.request("GET", f"/api/v1/jobs/{job_id}/health/heatmap", params=params)
        )

    def blame(self) -> Blame:
        """Nodes that were slow, counted over attempts and jobs."""
        return self._typed(Blame, self._transport.request("GET", "/api/v1/blame"))

    def cluster_goodput(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> ClusterGoodput:
        """Every GPU-second of all jobs between two times: the last 24 hours when left out."""
        times = {"since": since, "until": until}
        params = {name: at.isoformat() for name, at in times.items() if at is not None}
        return self._typed(ClusterGoodput, self._transport.request("GET", "/api/v1/goodput", params=params))

    def log(
        self,
        job_id: str,
        *,
        rank: int = 0,
        attempt: int | None = None,
        offset: int | None = None,
        limit: int = LOG_CHUNK_BYTES,
    ) -> Log:
        """A part of one rank's log; the newest attempt when `attempt` is None, the end when `offset` is None."""
        params = {"rank": rank, "attempt": attempt, "offset": offset, "limit": limit}
        return self._typed(Log, self._transport.request("GET", f"/api/v1/jobs/{job_id}/logs", params=params))

    def follow_log(self, job_id: str, *, rank: int = 0) -> Iterator[LogPiece]:
        """Parts of one rank's log from its beginning, as they are written, through repairs, until the job ends."""
        path = f"/api/v1/jobs/{job_id}/logs/stream"
        for document in self._transport.follow(path, params={"rank": rank, "tail_bytes": 0}):
            yield self._typed(LogPiece, document)

    # Cluster

    def plan(
        self,
        spec: Mapping[str, Any],
        *,
        auto: bool = False,
        ranks: int | None = None,
        tokens: float | None = None,
        checkpoint_stall_s: float | None = None,
        gpu_hours_between_failures: float | None = None,
    ) -> PlanAnswer:
        """Where the job would run now, or why it would not, and what it would cost; nothing is submitted.

        `auto` searches for the fastest plans on `ranks` accelerators (None: as many as the job's own plan has, or all
        when that is one). `tokens` is a budget to estimate the time for.
        """
        asked = {
            "auto": True if auto else None,
            "ranks": ranks,
            "tokens": tokens,
            "checkpoint_stall_s": checkpoint_stall_s,
            "gpu_hours_between_failures": gpu_hours_between_failures,
        }
        answer = self._transport.request("POST", "/api/v1/plan", params=asked, body=dict(spec))
        return self._typed(PlanAnswer, answer)

    def cordon(self, node: str, reason: str) -> Cordon:
        """No job is placed on the node from now on; one that is cordoned stays as it is."""
        answer = self._transport.request(
            "PUT", f"/api/v1/nodes/{quote(node, safe='')}/cordon", body={"reason": reason}
        )
        return self._typed(Cordon, answer)

    def uncordon(self, node: str) -> None:
        """The node takes work again, where nothing else forbids it."""
        self._transport.request("DELETE", f"/api/v1/nodes/{quote(node, safe='')}/cordon")

    def cluster(self) -> Cluster:
        return self._typed(Cluster, self._transport.request("GET", "/api/v1/cluster"))

    def _typed(self, kind: type[A], document: Any) -> A:
        try:
            return kind.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise NotAtollError(
                f"{self.url} gave an answer this client does not understand ({kind.__name__}.{where}: {first['msg']}); "
                "are client and server of the same version?"
            ) from None


def is_job_name(text: str) -> bool:
    return re.fullmatch(r"[a-z0-9-]{1,63}", text) is not None


def is_job_id(text: str) -> bool:
    """True for a whole UUID in its usual form."""
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
