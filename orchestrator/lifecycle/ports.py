"""What the reconciler needs from the outside world. Production gives Ray, tests and the simulator give their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.lifecycle.reports import GangOrder, GangReport, Move, NoMove
from orchestrator.topology.fabric import Fabric


class ClusterUnreachableError(RuntimeError):
    """The cluster gave no answer within its deadline."""


class SupervisorGoneError(RuntimeError):
    """No supervisor of that job and incarnation lives; its agents and slots may still have to be reaped."""


class FencedError(RuntimeError):
    """The supervisor has heard from a newer leader: the caller is no leader any more."""


@dataclass(frozen=True, slots=True)
class GangRef:
    job_id: str
    incarnation: int


class Launcher(Protocol):
    """Acts on the cluster. Every call has a deadline and raises ClusterUnreachableError when it passes.

    Calls are idempotent: starting a gang that lives, or ending one that is gone, is no error.
    """

    def fabric(self) -> Fabric:
        """Every node the cluster knows now, dead ones included with alive=False."""

    def gangs(self) -> Sequence[GangRef]:
        """Every gang of which anything is left: supervisor, agent or placement group."""

    def start(self, order: GangOrder) -> None: ...

    def poll(self, gang: GangRef, *, event_cursor: int, step_cursor: int, fencing_token: int) -> GangReport:
        """Renews the supervisor's lease and drains what is newer than the cursors. SupervisorGoneError when dead."""

    def cancel(self, gang: GangRef, *, fencing_token: int) -> None:
        """Asks the supervisor to end its ranks; the outcome arrives by poll."""

    def vacate(self, gang: GangRef, *, grace_s: float, fencing_token: int) -> None:
        """Asks the supervisor to let its ranks save a checkpoint and end within `grace_s`; the outcome arrives by
        poll."""

    def move(self, gang: GangRef, answer: Move | NoMove, *, fencing_token: int) -> None:
        """Answers a supervisor that lost nodes. One that does not wait for this very change takes no notice."""

    def reap(self, gang: GangRef) -> bool:
        """Ends whatever is left of the gang. True when nothing is left and its slots are free."""

    def remembered(self) -> Sequence[str]:
        """Ids of the jobs whose snapshots nodes keep in memory; these outlive a job's gangs."""

    def forget(self, job_id: str) -> None:
        """Gives the memory back that nodes keep for a job."""

    def read_log(self, gang: GangRef, *, rank: int, attempt: int | None, offset: int, limit: int) -> LogChunk:
        """Bytes of a live rank's log. A negative offset counts from the end."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    attempt: int
    rank: int
    offset: int
    """Offset of the first byte of `data` in the file."""
    data: bytes
    size: int
    """Size of the file when it was read."""
