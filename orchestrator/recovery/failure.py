"""Who died first, and of what: from everything that ended in an attempt to its one root cause.

When one rank dies the others lose their connections and fail within moments, with exceptions or, under gloo, by
SIGABRT. Those are followers: they say that somebody died, never who.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """What ended an attempt."""

    EXCEPTION = "exception"
    """The rank program raised."""
    INPUT = "input"
    """The rank program refused what it was given, by a ValueError before it was ready: a file that is not there."""
    SIGNAL = "signal"
    """A process was killed from outside or crashed."""
    EXIT = "exit"
    """A process ended with a code of its own, without a word."""
    PEER_LOST = "peer-lost"
    """Ranks lost a peer, and no death explains it."""
    TIMED_OUT = "timed-out"
    """A collective or the whole attempt waited longer than allowed."""
    HUNG = "hung"
    """No rank got on, and nobody died of it."""
    AGENT_LOST = "agent-lost"
    """A node's agent or its zygote is gone, the node is not."""
    NODE_LOST = "node-lost"


@dataclass(frozen=True, slots=True)
class RankDeath:
    """The end of one rank, as far as it is known: an exception is known before the process is gone."""

    rank: int
    node: str
    at: float
    """When it was first known to have failed: its exception, else its end."""
    exit_code: int | None = None
    """Negative for a signal; None while the process is still there."""
    errors: tuple[str, ...] = ()
    """`Type: message` of its exception and of what caused that, outermost first."""
    traceback: str = ""
    before_ready: bool = False
    """It raised before it said that it was ready to train."""


@dataclass(frozen=True, slots=True)
class NodeLoss:
    node: str
    at: float
    agent_only: bool = False
    """The node is alive, its agent or zygote is not."""


@dataclass(frozen=True, slots=True)
class Failure:
    cause: Cause
    at: float
    summary: str
    """One sentence for people."""
    rank: int | None = None
    node: str | None = None
    traceback: str = ""
    lost_nodes: tuple[str, ...] = ()
    followers: tuple[int, ...] = ()
    """Ranks that failed because of it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """JSON values for the history, beside these."""


class Blame(StrEnum):
    """Whose a failure is: each has a budget of its own, and hardware is never held against the job."""

    PROGRAM = "program"
    """The rank program or what it was given: an exception, or code of its own that does not come to an end."""
    RANK = "rank"
    """A rank or an agent was killed, ended, was stopped or stood still, and nothing says whose fault it was."""
    HARDWARE = "hardware"
    """A node is gone, or connections are with nobody dead."""


_BLAMES = {
    Cause.EXCEPTION: Blame.PROGRAM,
    Cause.INPUT: Blame.PROGRAM,
    Cause.NODE_LOST: Blame.HARDWARE,
    Cause.PEER_LOST: Blame.HARDWARE,
}
_ON_ITS_WAY = frozenset("RS")
"""States of a process that runs or waits for something as usual: neither stopped nor blocked in the kernel."""


def blame_of(failure: Failure) -> Blame:
    """A hang is the program's where the ranks that the others wait for are busy with something else. With nobody
    missing all wait for one another, as when the network fails."""
    if failure.cause is not Cause.HUNG:
        return _BLAMES.get(failure.cause, Blame.RANK)
    missing = set(failure.details.get("missing", ()))
    if not missing:
        return Blame.HARDWARE
    states = {one["state"] for one in failure.details.get("ranks", ()) if one["rank"] in missing}
    return Blame.PROGRAM if states and states <= _ON_ITS_WAY else Blame.RANK


_FOLLOWER = re.compile(
    r"connection (reset|closed|refused|was closed)|closed by peer|broken pipe|pair closure|socket closed"
    r"|connectfullmesh|gloo::|remote process exited|nccl.*(remote|system) error|failed to recv|store.*(closed|reset)",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed? ?out|timeout", re.IGNORECASE)
_DISTRIBUTED = re.compile(
    r"\b(Dist\w*Error|RuntimeError|ConnectionError|ConnectionResetError|BrokenPipeError)\b"
)


def lost_a_peer(death: RankDeath) -> bool:
    """True for a death that may only follow from another one.

    Any error of the chain counts: a pipeline wraps the lost connection of a stage in an exception of its own.
    """
    if death.errors:
        return _matches(death, _FOLLOWER) or _matches(death, _TIMED_OUT)
    return death.exit_code == -signal.SIGABRT


def _matches(death: RankDeath, pattern: re.Pattern[str]) -> bool:
    return any(_DISTRIBUTED.match(error) and pattern.search(error) for error in death.errors)


def classify(deaths: Sequence[RankDeath], losses: Sequence[NodeLoss], *, settled: bool) -> Failure | None:
    """The root cause. None while only followers are known and the true cause may still arrive (`settled` is False).

    A lost node explains everything; else the earliest death that is no follower; else the earliest of all.
    """
    nodes = [loss for loss in losses if not loss.agent_only]
    if nodes:
        first = min(nodes, key=lambda loss: loss.at)
        names = tuple(sorted(loss.node for loss in nodes))
        ranks = tuple(sorted(death.rank for death in deaths))
        summary = f"node {', '.join(names)} is lost"
        return Failure(Cause.NODE_LOST, first.at, summary, None, first.node, "", names, ranks)
    roots = [death for death in deaths if not lost_a_peer(death)]
    if roots:
        return _of_rank(min(roots, key=lambda death: death.at), deaths)
    if losses:
        loss = min(losses, key=lambda loss: loss.at)
        ranks = tuple(sorted(death.rank for death in deaths))
        return Failure(
            Cause.AGENT_LOST,
            loss.at,
            f"the agent of node {loss.node} is gone",
            None,
            loss.node,
            "",
            (),
            ranks,
        )
    if not deaths or not settled:
        return None
    return _of_rank(min(deaths, key=lambda death: death.at), deaths)


def _of_rank(first: RankDeath, deaths: Sequence[RankDeath]) -> Failure:
    followers = tuple(sorted(death.rank for death in deaths if death.rank != first.rank))
    cause, how = _cause(first)
    summary = f"rank {first.rank} on {first.node} {how}"
    return Failure(cause, first.at, summary, first.rank, first.node, first.traceback, (), followers)


def _cause(death: RankDeath) -> tuple[Cause, str]:
    if death.errors:
        said = " from ".join(dict.fromkeys((death.errors[0], death.errors[-1])))
        if _matches(death, _TIMED_OUT):
            return Cause.TIMED_OUT, f"waited too long for another rank: {said}"
        if _matches(death, _FOLLOWER):
            return Cause.PEER_LOST, f"lost its connection to another rank: {said}"
        refused = death.before_ready and death.errors[0].startswith("ValueError:")
        return Cause.INPUT if refused else Cause.EXCEPTION, f"raised {said}"
    if death.exit_code is not None and death.exit_code < 0:
        return Cause.SIGNAL, f"was ended by {signal_name(-death.exit_code)}"
    return Cause.EXIT, f"ended with exit code {death.exit_code} before the training was done"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
