"""What a supervisor and its agents, and an agent and its zygote and ranks, say to one another."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.topology.fabric import Slot


class NoteKind(StrEnum):
    """What a note of an agent tells. All but `phases`, `exited` and `zygote-lost` are passed on from a
    rank."""

    HELLO = "hello"
    READY = "ready"
    STEP = "step"
    PHASES = "phases"
    """What the ranks of the node measured of their steps since the last one, about no rank: `rows`, an array
    (rows, columns of `orchestrator.health.phases.ROW`)."""
    EVENT = "event"
    FAILED = "failed"
    """An exception ended the rank program: `error`, `traceback`. Sent before anything of the rank closes."""
    DONE = "done"
    EXITED = "exited"
    """The process is gone: `code`, negative for a signal. The last note of its rank."""
    ZYGOTE_LOST = "zygote-lost"


@dataclass(frozen=True, slots=True)
class Note:
    seq: int
    """1, 2, 3 ... within one agent."""
    at: float
    attempt: int
    rank: int
    """-1 when the note is about no rank."""
    kind: NoteKind
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notes:
    """An agent's answer to the question what is new."""

    at: float
    """When it was given, by the clock that the notes' times are of."""
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What an agent says of itself when it is asked first."""

    node: str
    address: str
    """IP address of the node; the rendezvous of an attempt listens on it."""
    pid: int
    zygote_pid: int


@dataclass(frozen=True, slots=True)
class RankOrder:
    """Which ranks an agent forks for an attempt, and everything they need to run."""

    job_id: str
    incarnation: int
    attempt: int
    ranks: tuple[tuple[int, int], ...]
    """(rank, accelerator index) of each."""
    slots: tuple[Slot, ...]
    """Slot of every rank of the job: world size and rank of node follow."""
    program: str
    """`module:function`, called with (JobSpec, RankContext)."""
    spec: Mapping[str, Any]
    job_directory: str
    rendezvous: tuple[str, int]
    timeout_s: float
    threads: int
    extras: Mapping[str, Any] = field(default_factory=dict)


class Lines:
    """JSON lines over a stream socket. `receive` returns what has arrived; `ended` is set once nothing more will."""

    LIMIT_BYTES = 16 << 20
    """Longest line taken: a rank that sends more is broken."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.ended = False
        self._buffer = b""

    def send(self, message: Mapping[str, Any]) -> None:
        self.connection.sendall(encode(message))

    def receive(self) -> list[dict[str, Any]]:
        """Reads once (blocking or not as the socket is) and returns the complete messages."""
        try:
            data = self.connection.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionError:
            data = b""
        if not data:
            self.ended = True
            return []
        *complete, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > self.LIMIT_BYTES:
            raise ValueError(f"a message is longer than {self.LIMIT_BYTES} bytes")
        return [json.loads(line) for line in complete if line]


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
