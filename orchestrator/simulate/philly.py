"""The Philly trace: jobs of Microsoft's cluster of 2017 (Jeon et al. 2019, ATC), as AdaptDL's simulator keeps it.

CSV with the columns timestamp (local time, no zone), duration (s), num_gpus, gpu_time (s), cluster (one of 15 virtual
clusters, here the project). It says nothing of how a job was parallel; `mesh_for` says what is assumed.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from datetime import UTC, datetime

from orchestrator.placement.mesh import Mesh
from orchestrator.queue.claims import Claim
from orchestrator.simulate.jobs import Shape, SimulatedJob

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster"
LONGEST_PIPELINE = 4


class InvalidTraceError(ValueError):
    """A trace that cannot be taken; the message names the first wrong lines."""


def read_philly(
    text: str, *, origin: str, island: int, limit_factor: float | None, faster: float, seed: int
) -> list[SimulatedJob]:
    """Jobs in the order of their submission. InvalidTraceError names up to ten wrong lines.

    `island`: accelerators of the largest island; tensor groups are no larger. `limit_factor`: each job is given a time
    limit of its duration times a random factor from 1 to this one, as users guess; None: no limits. `faster`: the time
    between two submissions is divided by it.
    """
    guess = random.Random(seed)
    shapes: dict[int, Shape] = {}
    rows, problems = [], []
    for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        try:
            at_s = datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp()
            duration_s, size = float(row["duration"]), int(row["num_gpus"])
            if duration_s <= 0 or not 1 <= size <= 100_000:
                raise ValueError(f"duration {duration_s:g} and num_gpus {size} must be at least 1")
        except (TypeError, ValueError) as error:
            problems.append(f"line {number}: {error}")
            continue
        rows.append((at_s, number, duration_s, size, row["cluster"]))
    if problems or not rows:
        shown = "; ".join(problems[:10]) or "it holds no job"
        raise InvalidTraceError(f"{origin}: {shown}")
    rows.sort()
    first_s = rows[0][0]
    jobs = []
    for at_s, number, duration_s, size, project in rows:
        limit_s = None if limit_factor is None else duration_s * guess.uniform(1.0, limit_factor)
        claim = Claim(
            f"{number:06d}", f"philly-{number}", project or "default", 0, size, limit_s, False, 60.0
        )
        if size not in shapes:
            shapes[size] = Shape(mesh_for(size, island))
        jobs.append(SimulatedJob(claim, shapes[size], first_s + (at_s - first_s) / faster, duration_s))
    return jobs


def mesh_for(size: int, island: int) -> Mesh:
    """The plan that is assumed for a job: a tensor group as large as an island takes (a power of two, eight at most),
    then a pipeline of up to four stages, then replicas."""
    tp = next(degree for degree in (8, 4, 2, 1) if degree <= island and size % degree == 0)
    if size <= min(island, 8):
        return Mesh((size, 1, 1, 1))
    pp = max(_divisors(size // tp, LONGEST_PIPELINE))
    return Mesh((tp, 1, pp, size // (tp * pp)))


def _divisors(number: int, at_most: int) -> Iterator[int]:
    return (degree for degree in range(1, at_most + 1) if number % degree == 0)
