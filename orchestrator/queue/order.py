"""The order of the queue: who has waited too long, then priority, then the smallest share of a project, then age."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.queue.claims import Waiting
from orchestrator.queue.policy import QueuePolicy


class Shares:
    """The share of every project: accelerators held now and lately, over its weight. Grows as its jobs start."""

    def __init__(self, policy: QueuePolicy, held: Mapping[str, int], use: Mapping[str, float]) -> None:
        """`held`: accelerators held now; `use`: their mean over the past (`use.mean_use`). Both by project."""
        self._policy = policy
        self._held: defaultdict[str, int] = defaultdict(int, held)
        self._use = use

    def of(self, project: str) -> float:
        return (self._held[project] + self._use.get(project, 0.0)) / self._policy.project(project).weight

    def held(self, project: str) -> int:
        return self._held[project]

    def take(self, project: str, size: int) -> None:
        self._held[project] += size


def has_starved(waited_s: float, policy: QueuePolicy) -> bool:
    return waited_s >= policy.starvation_s


def in_order(waiting: Sequence[Waiting], shares: Shares, policy: QueuePolicy) -> Iterator[Waiting]:
    """Every job of `waiting`, each when its turn comes. Between two of them the share of the first one's project may
    change, as it does when the job starts.

    So the wait of a job is bounded whatever its priority and its project's share: after `starvation_s` only jobs that
    have waited as long, and are older, go before it.
    """
    starved = [job for job in waiting if has_starved(job.waited_s, policy)]
    yield from sorted(starved, key=_age)
    lines: defaultdict[str, list[Waiting]] = defaultdict(list)
    for job in waiting:
        if not has_starved(job.waited_s, policy):
            lines[job.claim.project].append(job)
    heads = [_head(deque(sorted(line, key=_rank)), shares) for line in lines.values()]
    heapq.heapify(heads)
    while heads:
        _, line = heads[0]
        yield line.popleft()
        if line:
            heapq.heapreplace(heads, _head(line, shares))
        else:
            heapq.heappop(heads)


def _head(line: deque[Waiting], shares: Shares) -> tuple[tuple[int, float, float, str], deque[Waiting]]:
    """A project's line with the turn of its first job. No two jobs have the same turn, so lines are never compared."""
    return (*_turn(line[0], shares), *_age(line[0])), line


def _age(job: Waiting) -> tuple[float, str]:
    return job.submitted_s, job.claim.job_id


def _rank(job: Waiting) -> tuple[int, float, str]:
    """Within a project."""
    return -job.claim.priority, *_age(job)


def _turn(job: Waiting, shares: Shares) -> tuple[int, float]:
    """Between projects."""
    return -job.claim.priority, shares.of(job.claim.project)
