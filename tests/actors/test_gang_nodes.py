"""Nodes of a gang that are taken and left, without Ray."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import gang as gang_module
from actors.gang import Agent, Gang
from orchestrator.lifecycle.reports import GangOrder
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.sections import RecoverySpec
from orchestrator.topology.fabric import Fabric, Slot

NODES = 30
ORDER = GangOrder(
    "job", 1, 1, 0, (0, 0), {}, tuple(Slot(f"n{i}", 0) for i in range(NODES)), Fabric(()), "/storage", 1
)


class FakeReservations:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.given_back: list[str] = []

    def take(self, nodes: Any, slots: Any, resources: Any) -> None:
        self.taken += nodes

    def give_back(self, nodes: Any) -> None:
        self.given_back += nodes


def test_row_42_all_agents_of_a_gang_start_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """None comes up before all are under way; then two nodes are lost, and two start together in their place."""
    monkeypatch.setattr(gang_module.ray_nodes, "resources_by_host", dict)
    monkeypatch.setattr(gang_module, "_kill", lambda actor: None)
    found: list[str] = []

    async def scenario() -> Any:
        gang: Any = Gang(ORDER, Timeouts.of(RecoverySpec()), lambda news: None)
        gang._reservations = FakeReservations()
        under_way = asyncio.Barrier(NODES)

        async def start(node: str) -> None:
            await under_way.wait()
            found.append(node)
            gang._agents[node] = Agent(node, None, lost=True)

        gang._start_agent = start
        await gang.open()
        under_way = asyncio.Barrier(2)
        await gang.move([Slot(f"n{i}", 0) for i in range(2, NODES + 2)])
        return gang

    gang = asyncio.run(asyncio.wait_for(scenario(), 30))
    assert sorted(found[:NODES]) == sorted(f"n{i}" for i in range(NODES))
    assert sorted(found[NODES:]) == ["n30", "n31"]
    assert gang._reservations.given_back == ["n0", "n1"]
    assert gang._reservations.taken[NODES:] == ["n30", "n31"]
