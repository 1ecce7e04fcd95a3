"""Blame of nodes, counted over attempts and jobs: one attempt may be unlucky, a node that is slow in several is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.health.finding import Finding


@dataclass(frozen=True, slots=True)
class Blame:
    node: str
    attempts: int
    """Attempts of any job in which it was slow; each counts once, however often it was."""
    jobs: int
    cost_s: float
    """What they lost to it. Seconds of different clocks: an order of magnitude."""
    newest: str
    """The newest sentence said of it."""


def blame_of(told: Mapping[str, Iterable[tuple[str, Finding]]]) -> tuple[Blame, ...]:
    """The most blamed first. `told`: by node, (job id, straggler), oldest first."""
    counted = []
    for node, found in told.items():
        listed = list(found)
        attempts = {(job_id, one.attempt) for job_id, one in listed}
        counted.append(
            Blame(
                node=node,
                attempts=len(attempts),
                jobs=len({job_id for job_id, _ in attempts}),
                cost_s=sum(one.cost_s for _, one in listed),
                newest=listed[-1][1].sentence,
            )
        )
    return tuple(sorted(counted, key=lambda blame: (-blame.attempts, -blame.cost_s, blame.node)))
