"""A whole node dies: the supervisor says so, nothing of the gang is left on the living ones."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from actors import processes
from actors.local_cluster import LocalCluster
from orchestrator.lifecycle.reports import EventKind, Outcome
from orchestrator.lifecycle.states import Reason
from orchestrator.topology.fabric import Slot

# Slow: test_exactness.py kills a raylet in every run.
pytestmark = [pytest.mark.timeout(1500), pytest.mark.slow]


def test_killed_raylet_is_a_lost_node(
    breakable_cluster: LocalCluster,
    connect: Any,
    new_driver: Any,
    small_spec: dict[str, Any],
    leaf_slots: tuple[Slot, ...],
) -> None:
    launcher = connect(breakable_cluster)
    driver = new_driver(launcher)
    driver.start(
        leaf_slots, small_spec, program="toy_program:run", extras={"steps": 100_000, "pause_s": 0.05}
    )
    before = driver.until(lambda report: report.step >= 2, "two steps are done")
    os.kill(breakable_cluster.raylets["l1n0"], signal.SIGKILL)
    report = driver.end()
    assert (report.outcome, report.reason) == (Outcome.NODE_LOST, Reason.NODE_LOST), report.message
    assert "l1n0" in report.message
    assert report.restarts_used == 0, "the controller counts the restart when it places the job again"
    assert report.deaths_at_step[1] == 0, "hardware is not held against the job"
    assert report.spent["hardware"] == 1
    assert driver.event(EventKind.REPAIR_STARTED).data["rung"] == "requeue"
    lost = driver.event(EventKind.NODE_LOST)
    assert lost.data["node"] == "l1n0"
    assert not any(processes.alive(fact.pid) for fact in before.ranks), "ranks of the dead node ended with it"
    assert {tail.rank for tail in report.logs} == {0, 1, 2, 3}, (
        "logs of the dead node are read from the storage"
    )
    driver.assert_all_free()
    nodes = {node.name: node for node in launcher.fabric().nodes}
    assert not nodes["l1n0"].alive
    assert nodes["l1n1"].alive
