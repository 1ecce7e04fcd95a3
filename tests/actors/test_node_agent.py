"""What a rank said comes before its end, whichever of the two sockets is read first. Without Ray, without a zygote."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from actors import node_agent
from actors.messages import Note, NoteKind, RankOrder
from actors.node_agent import NodeAgent
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.sections import RecoverySpec
from orchestrator.topology.fabric import Slot


class FakeZygoteLink:
    """Forks nothing; the test says what became of the rank."""

    pid = 1

    def __init__(self, program: str, threads: int) -> None: ...

    async def listen(self, heard: Callable[[Mapping[str, Any]], None], lost: Callable[[], None]) -> None: ...

    def fork(self, shared: Mapping[str, Any], ranks: list[dict[str, Any]]) -> None: ...

    def end(self) -> None: ...


@pytest.fixture
def agent_class(monkeypatch: pytest.MonkeyPatch) -> type[NodeAgent]:
    place = SimpleNamespace(get_node_id=lambda: "00", get_node_labels=lambda: {"host": "n0"})
    monkeypatch.setattr(node_agent, "ZygoteLink", FakeZygoteLink)
    monkeypatch.setattr(node_agent, "RANK_DRAIN_S", 3600.0)  # a wait that should not be would not end
    monkeypatch.setattr(ray, "get_runtime_context", lambda: place)
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    return NodeAgent


def order(directory: Path) -> RankOrder:
    return RankOrder(
        job_id="job",
        incarnation=1,
        attempt=1,
        ranks=((0, 0),),
        slots=(Slot("n0", 0),),
        program="any:any",
        spec={},
        job_directory=str(directory),
        rendezvous=("127.0.0.1", 1),
        timeout_s=1.0,
        threads=1,
    )


async def _notes(agent: NodeAgent, directory: Path, *, code: int, says: tuple[str, ...]) -> list[Note]:
    """Notes of a rank whose end the zygote tells before a word of it was read."""
    await agent.open()
    await agent.start(order(directory))
    agent._hear_zygote({"is": "exited", "attempt": 1, "rank": 0, "code": code})
    if says:
        _, writer = await asyncio.open_unix_connection(agent._directory / "agent.sock")
        for kind in says:
            line = {"kind": kind, "at": time.time(), "rank": 0, "attempt": 1, "data": {}}
            writer.write(json.dumps(line).encode() + b"\n")
        writer.close()
    notes: list[Note] = []
    while not any(note.kind is NoteKind.EXITED for note in notes):
        notes += (await agent.watch(notes[-1].seq if notes else 0)).notes
    await agent.shutdown()
    return notes


def test_words_of_a_rank_that_ended_by_itself_come_before_its_end(
    agent_class: type[NodeAgent], tmp_path: Path
) -> None:
    async def told() -> list[str]:
        agent = agent_class("n0", "any:any", 1, Timeouts.of(RecoverySpec()))
        return [note.kind for note in await _notes(agent, tmp_path, code=1, says=("hello", "failed"))]

    assert asyncio.run(told()) == ["hello", "failed", "exited"]


def test_a_rank_killed_before_it_said_anything_is_not_waited_for(
    agent_class: type[NodeAgent], tmp_path: Path
) -> None:
    async def told() -> list[str]:
        agent = agent_class("n0", "any:any", 1, Timeouts.of(RecoverySpec()))
        notes = await asyncio.wait_for(_notes(agent, tmp_path, code=-9, says=()), 60.0)
        return [note.kind for note in notes]

    assert asyncio.run(told()) == ["exited"]


def test_row_40_a_rank_of_an_attempt_that_is_over_is_not_heard(
    agent_class: type[NodeAgent], tmp_path: Path
) -> None:
    """It lived on where nobody reached it; the attempt here is another one by now."""

    async def scenario() -> list[Note]:
        agent = agent_class("n0", "any:any", 1, Timeouts.of(RecoverySpec()))
        await agent.open()
        await agent.start(order(tmp_path))
        agent._hear_zygote({"is": "exited", "attempt": 1, "rank": 0, "code": -9})
        newer = replace(order(tmp_path), attempt=2)
        await agent.start(newer)
        with pytest.raises(ValueError, match="attempt 1 is not newer than 2"):
            await agent.start(order(tmp_path))
        for attempt in (1, 2):
            reader, writer = await asyncio.open_unix_connection(agent._directory / "agent.sock")
            line = {"kind": "step", "at": time.time(), "rank": 0, "attempt": attempt, "data": {}}
            writer.write(json.dumps(line).encode() + b"\n")
            if attempt == 1:
                assert await reader.read() == b"", "it is hung up on"
            writer.close()
        notes: list[Note] = []
        while not any(note.kind is NoteKind.STEP for note in notes):
            notes += (await agent.watch(notes[-1].seq if notes else 0)).notes
        await agent.shutdown()
        return notes

    notes = asyncio.run(asyncio.wait_for(scenario(), 60.0))
    assert [(note.attempt, note.kind) for note in notes] == [(1, NoteKind.EXITED), (2, NoteKind.STEP)]
