"""What a rank was last known to do, as its node read it while the rank itself may answer nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STEP, EVALUATION, CHECKPOINT = "step", "evaluation", "checkpoint"
"""Phases of a rank program; one that tells none has the phase `""`."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A group that collectives pass, or one direction between two ranks of it, as one rank counted it."""

    name: str
    """The same on every rank of it."""
    axis: str
    ranks: Sequence[int]
    """Ranks of the job that take part; sender and receiver of a direction."""
    issued: int
    """Collectives, or messages, that this rank has begun on it in this attempt."""
    kind: str
    """The newest of them: `all-reduce`, `send`."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank that is inside collective `number` (1, 2, 3 ...) of a channel."""

    channel: str
    number: int


@dataclass(frozen=True, slots=True)
class Standing:
    rank: int
    node: str
    step: int = 0
    """Finished steps."""
    moves: int = 0
    """Steps finished, phases begun, batches evaluated: counts up whenever the rank gets on."""
    still_s: float = 0.0
    """Seconds since it last got on, by its node's clock."""
    phase: str = ""
    part: str = ""
    """What of a step: `data`, `execution`, `optimizer`."""
    state: str = ""
    """State of its main thread in /proc: R runs, S sleeps, D waits in the kernel, T is stopped."""
    wait: Wait | None = None
    channels: tuple[Channel, ...] = ()
    stack: str = ""
    """Its Python stacks as faulthandler writes them; empty: it gave none."""

    def channel(self, name: str) -> Channel | None:
        return next((channel for channel in self.channels if channel.name == name), None)
