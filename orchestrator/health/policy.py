"""What is done about a slow node: nothing, or doing without it from the next checkpoint on. Decisions are values.

A node is replaced when that is sure to gain more than it costs: the rest of the job loses `step_cost_s` a step with it,
and the repair takes some seconds once. What no other node would heal is left: slow data, garbage collection, uneven
work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.verdict import Kind
from orchestrator.spec.sections import Stragglers

CONFIDENT = 0.8
SHARED_CORES_FACTOR = 1.5
"""How slow a rank must be whose CPU time alone is known: where ranks share cores, caches are shared, too, and less is
their doing."""
LASTED_STEPS = 20
"""Shortest slowness that is acted on: what is over soon by itself is not."""
GAIN = 3.0
"""What is to be won must be so many times what the repair costs: the estimate may be wrong, and the spare slow, too."""
CORDON_ATTEMPTS = 2
"""Attempts in which a node was slow, of any job, after which no job is placed on it."""
MOST_REPLACEMENTS = 3
"""Of one job: where a fourth node is slow, too, it is not the nodes."""
OF_A_NODE = frozenset({Kind.CONSTANT, Kind.ONSET, Kind.PERIODIC, Kind.NODE})


@dataclass(frozen=True, slots=True)
class Replacement:
    node: str
    ranks: tuple[int, ...]
    """Slow ranks on it."""
    gain_s: float
    """What the rest of the job would lose to it, less the repair."""
    reason: str


@dataclass(frozen=True, slots=True)
class Cordon:
    node: str
    at: datetime
    reason: str


def replacement(
    policy: Stragglers,
    findings: Sequence[Finding],
    *,
    step: int,
    total_steps: int,
    repair_s: float,
    kept: frozenset[str] = frozenset(),
) -> Replacement | None:
    """The one node that the job should do without from now on; None: it goes on as it is.

    `repair_s`: seconds from giving up the ranks to their next step. `kept`: nodes that were tried to be replaced in
    vain. Two nodes at once are the one with the larger gain first.
    """
    if policy is not Stragglers.REPLACE:
        return None
    by_node: dict[str, list[Finding]] = {}
    for one in findings:
        if _is_sure(one, step) and one.nodes[0] not in kept:
            by_node.setdefault(one.nodes[0], []).append(one)
    worth = [
        found
        for node, slow in by_node.items()
        if (found := _weighed(node, slow, total_steps - step, repair_s)) is not None
    ]
    return max(worth, key=lambda found: found.gain_s, default=None)


def cordons(attempts_blamed: Mapping[str, int], *, now: datetime, cordoned: frozenset[str]) -> list[Cordon]:
    """Nodes that no job should be placed on from now. `attempts_blamed`: `Blame.attempts` by node."""
    return [
        Cordon(node, now, f"slow in {attempts} attempts")
        for node, attempts in sorted(attempts_blamed.items())
        if attempts >= CORDON_ATTEMPTS and node not in cordoned
    ]


def _is_sure(one: Finding, step: int) -> bool:
    return (
        one.category is Category.STRAGGLER
        and one.ongoing
        and one.kind in OF_A_NODE
        and len(one.nodes) == 1
        and one.confidence >= CONFIDENT
        and (one.clock is not Clock.CPU or one.factor >= SHARED_CORES_FACTOR)
        and step - one.from_step >= LASTED_STEPS
    )


def _weighed(node: str, slow: Sequence[Finding], steps_left: int, repair_s: float) -> Replacement | None:
    worst = max(slow, key=lambda one: one.step_cost_s)
    lost_s = worst.step_cost_s * steps_left
    if lost_s < GAIN * repair_s:
        return None
    ranks = tuple(sorted({rank for one in slow for rank in one.ranks}))
    said = worst.sentence.rstrip(".")
    reason = f"{said}: {lost_s:.0f} s over the {steps_left} steps left, a repair takes {repair_s:.0f} s"
    return Replacement(node, ranks, lost_s - repair_s, reason)
