"""`atoll health` against a real API process: who is slow, and what is said when nobody is or nothing is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from orchestrator.health.finding import Category, Clock, Finding
from orchestrator.lifecycle.reports import HealthReport
from orchestrator.store import health
from tests.atoll.conftest import NOW

Atoll = Callable[..., Any]
SLOW = Finding(
    attempt=1,
    category=Category.STRAGGLER,
    kind="onset",
    subject="rank 5",
    ranks=(5,),
    nodes=("n2",),
    from_step=120,
    to_step=219,
    factor=1.31,
    cost_s=8.0,
    step_cost_s=0.08,
    confidence=0.95,
    ongoing=True,
    clock=Clock.CPU,
    sentence="Rank 5 on node n2 computes 1.31 times as long.",
)
UNEVEN = replace(
    SLOW,
    category=Category.IMBALANCE,
    kind="stage",
    subject="stage 1",
    sentence="Stage 1 computes 1.40 times as long.",
)


def keep(server: Any, job_id: str, *findings: Finding) -> None:
    with server.database.write() as session:
        health.keep(session, job_id, HealthReport(1, Clock.CPU, findings, ()), at=NOW)


def test_who_is_slow_is_named_with_node_and_cost(server: Any, atoll: Atoll) -> None:
    job_id = server.insert("slow-one")
    keep(server, job_id, SLOW, UNEVEN)
    ran = atoll("health", job_id)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "slow now: rank 5"
    assert lines[2].split() == ["1", "rank", "5", "n2", "onset", "120-", "1.31", "0.08", "s", "(CPU)", "0.95"]
    assert lines[3] == "uneven work (no machine's fault): Stage 1 computes 1.40 times as long."
    found = json.loads(atoll("health", job_id, "--json").out)
    assert [one["subject"] for one in found["findings"]] == ["rank 5", "stage 1"]


def test_one_that_recovered_is_healthy_again(server: Any, atoll: Atoll) -> None:
    job_id = server.insert("slow-once")
    keep(server, job_id, replace(SLOW, kind="transient", ongoing=False))
    assert atoll("health", job_id).out.startswith("healthy, but it was not always\n")


def test_nothing_is_known_at_first(server: Any, atoll: Atoll) -> None:
    assert atoll("health", server.insert("fresh")).out.startswith("Nothing is known yet")
