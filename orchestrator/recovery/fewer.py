"""A job with fewer data replicas: the same global batch, in more micro-batches of the same size in each replica.

The losses are those of the whole job but for the order in which sums are rounded: init depends on (seed, name), data on
(seed, step), and a checkpoint of one plan is loaded by another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.spec.parse import parse_spec
from orchestrator.spec.violations import InvalidSpecError


def with_replicas(document: Mapping[str, Any], dp: int) -> dict[str, Any]:
    """The job file with `dp` replicas. `dp` divides its replicas times its micro-batches."""
    plan = document.get("parallelism", {})
    batches = plan.get("dp", 1) * plan.get("microbatches", 1)
    return {**document, "parallelism": {**plan, "dp": dp, "microbatches": batches // dp}}


def degrees(document: Mapping[str, Any], *, below: int) -> Iterator[int]:
    """Numbers of replicas under `below` with which the job file allows to go on, most first; none without
    `recovery.min_dp`. ZeRO's shards, experts and the batch must come out whole, as for any job."""
    fewest = document.get("recovery", {}).get("min_dp")
    plan = document.get("parallelism", {})
    batches = plan.get("dp", 1) * plan.get("microbatches", 1)
    for dp in range(below - 1, (fewest or below) - 1, -1):
        if batches % dp == 0 and _valid(with_replicas(document, dp)):
            yield dp


def _valid(document: dict[str, Any]) -> bool:
    try:
        parse_spec(document)
    except InvalidSpecError:
        return False
    return True
