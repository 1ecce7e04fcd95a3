"""Replacing a slow node: only where it is sure, lasts, and gains more than it costs; blame over attempts and jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.health.blame import blame_of
from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.health.policy import Cordon, cordons, replacement
from orchestrator.spec.sections import Stragglers

SLOW = Finding(
    attempt=1,
    category=Category.STRAGGLER,
    kind="onset",
    subject="rank 5",
    ranks=(5,),
    nodes=("n2",),
    from_step=100,
    to_step=199,
    factor=1.3,
    cost_s=8.0,
    step_cost_s=0.08,
    confidence=0.95,
    ongoing=True,
    clock=Clock.WALL,
    sentence="Rank 5 on node n2 computes 1.30 times as long as its peers since step 100; costs 0.08 s a step.",
)
NOW = datetime(2026, 12, 2, tzinfo=UTC)


def decide(*found: Finding, policy: Stragglers = Stragglers.REPLACE, **changes: Any) -> str | None:
    given: dict[str, Any] = {"step": 200, "total_steps": 10_200, "repair_s": 20.0} | changes
    chosen = replacement(policy, found, **given)
    return None if chosen is None else chosen.node


def test_a_lasting_slow_node_is_replaced_when_that_gains() -> None:
    chosen = replacement(Stragglers.REPLACE, [SLOW], step=200, total_steps=10_200, repair_s=20.0)
    assert chosen is not None
    assert (chosen.node, chosen.ranks) == ("n2", (5,))
    assert chosen.gain_s == pytest.approx(0.08 * 10_000 - 20.0)
    assert chosen.reason.endswith("800 s over the 10000 steps left, a repair takes 20 s")


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": Stragglers.OBSERVE},
        {"policy": Stragglers.OFF},
        {"total_steps": 900},  # 0.08 s x 700 steps < 3 x 20 s
        {"repair_s": 300.0},
        {"step": 115},  # lasted 15 steps
        {"kept": frozenset({"n2"})},
    ],
)
def test_it_stays_where_that_is_not_wanted_or_does_not_gain(changes: dict[str, Any]) -> None:
    assert decide(SLOW) == "n2"
    assert decide(SLOW, **changes) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"ongoing": False},
        {"confidence": 0.7},
        {"clock": Clock.CPU, "factor": 1.4},
        {"category": Category.IMBALANCE},
        {"kind": "data_loader"},
        {"kind": "gc"},
        {"kind": "link", "nodes": ("n2", "n3")},
    ],
)
def test_what_another_node_would_not_heal_is_left(changed: dict[str, Any]) -> None:
    assert decide(replace(SLOW, **changed)) is None


def test_where_cores_are_shared_half_as_long_again_is_sure() -> None:
    assert decide(replace(SLOW, clock=Clock.CPU, factor=1.6)) == "n2"


def test_the_costlier_of_two_goes_first() -> None:
    other = replace(SLOW, subject="rank 1", ranks=(1,), nodes=("n0",), step_cost_s=0.2)
    assert decide(SLOW, other) == "n0"
    assert decide(SLOW, other, kept=frozenset({"n0"})) == "n2"


def test_blame_counts_attempts_of_all_jobs_once() -> None:
    again = replace(SLOW, attempt=2, sentence="again")
    told = {
        "n2": [("a", SLOW), ("a", replace(SLOW, from_step=300)), ("a", again), ("b", SLOW)],
        "n0": [("b", SLOW)],
    }
    first, second = blame_of(told)
    assert (first.node, first.attempts, first.jobs, first.cost_s) == ("n2", 3, 2, 32.0)
    assert (second.node, second.attempts, second.jobs) == ("n0", 1, 1)
    blamed = {blame.node: blame.attempts for blame in (first, second)}
    assert cordons(blamed, now=NOW, cordoned=frozenset()) == [Cordon("n2", NOW, "slow in 3 attempts")]
    assert cordons(blamed, now=NOW, cordoned=frozenset({"n2"})) == []
