"""The Philly trace: jobs of Microsoft's cluster of 2017 (Jeon et al. 2019, ATC), as AdaptDL's simulator keeps it.

CSV with the columns timestamp (local time, no zone), duration (s), num_gpus, gpu_time (s), cluster (one of 15 virtual
clusters, here the project). It says nothing of how a job was parallel; `mesh_for` says what is assumed.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from datetime import UTC, datetime

from orchestrator.placement.mesh import Mesh
from orchestrator.queue.claims import Claim
from orchestrator.simulate.jobs import LONGEST_S, Shape, SimulatedJob
from orchestrator.topology.sources.reading import shortened

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster"
LONGEST_PIPELINE = 4
MOST_GPUS = 100_000
PROBLEMS_SHOWN = 10


class InvalidTraceError(ValueError):
    """A trace that cannot be taken; the message names the first wrong lines and counts the others."""


def read_philly(
    text: str, *, origin: str, island: int, limit_factor: float | None, faster: float, seed: int
) -> list[SimulatedJob]:
    """Jobs in the order of their submission. InvalidTraceError names up to ten wrong fields with their lines.

    `island`: accelerators of the largest island; tensor groups are no larger. `limit_factor`: each job is given a time
    limit of its duration times a random factor from 1 to this one, as users guess; None: no limits. `faster`: the time
    between two submissions is divided by it.
    """
    guess = random.Random(seed)
    shapes: dict[int, Shape] = {}
    rows = _rows(text, origin)
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


_Row = tuple[float, int, float, int, str]
"""(submission in seconds since 1970, line, duration in seconds, accelerators, cluster)."""


def _rows(text: str, origin: str) -> list[_Row]:
    """The jobs in the order of time."""
    rows: list[_Row] = []
    problems: list[str] = []
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    try:
        if ",".join(name.strip() for name in next(reader, [])) != HEADER:
            raise InvalidTraceError(f"{origin}: line 1: the columns must be {HEADER}")
        for fields in reader:
            if not fields:
                continue
            found = list(_flaws(fields))
            problems += [f"line {reader.line_num}: {flaw}" for flaw in found]
            if not found:
                at, duration, size, _, cluster = fields
                rows.append((_time(at), reader.line_num, float(duration), int(size), cluster))
    except csv.Error as error:
        problems.append(f"line {reader.line_num}: {error}")
    if len(problems) > PROBLEMS_SHOWN:
        problems[PROBLEMS_SHOWN:] = [f"{len(problems) - PROBLEMS_SHOWN} more like these"]
    if problems or not rows:
        raise InvalidTraceError(f"{origin}: {'; '.join(problems) or 'it holds no job'}")
    return sorted(rows)


def _flaws(fields: list[str]) -> Iterator[str]:
    """What is wrong with a line."""
    columns = HEADER.split(",")
    if len(fields) != len(columns):
        yield f"{len(fields)} fields, expected {len(columns)}: {HEADER}"
        return
    at, duration, size = fields[:3]
    try:
        _time(at)
    except ValueError:
        yield f"timestamp: must be a time like 2017-10-09 07:01:55, not {shortened(at)!r}"
    if not 0 < _number(duration) <= LONGEST_S:
        yield f"duration: must be seconds, more than 0 and at most {LONGEST_S:g}, not {shortened(duration)!r}"
    if not (size.isascii() and size.isdecimal() and len(size) < 10 and 1 <= int(size) <= MOST_GPUS):
        yield f"num_gpus: must be a whole number from 1 to {MOST_GPUS}, not {shortened(size)!r}"


def _time(text: str) -> float:
    """Seconds since 1970; a time without a zone as if it were UTC."""
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _number(text: str) -> float:
    """NaN for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return float("nan")


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
