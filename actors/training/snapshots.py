"""The snapshots in memory of one attempt, and what the job is told of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from actors.checkpoint.memory import MemoryStore, VaultOrders
from actors.checkpoint.peers import Peers
from actors.training.context import RankContext
from actors.vault import EXTRA
from orchestrator.lifecycle.reports import EventKind

_NUMBER = re.compile(r"\d+")
Say = Callable[[EventKind, str, Mapping[str, Any]], None]


class Snapshots:
    """`store` does the work; here is what is worth an event: the first complete one, and each new reason for none."""

    def __init__(self, store: MemoryStore, refused: list[tuple[int, str]]) -> None:
        self.store = store
        self._refused = refused
        """(step, why) of what the supervisor found to be of no use."""
        self._kept = False
        self._reason: str | None = None
        """Why the newest could not be kept, without its numbers: sizes and steps are new each time."""

    @classmethod
    def of(cls, context: RankContext) -> Snapshots | None:
        """None where nobody told the ranks of vaults: the job keeps none, or runs without a supervisor. Collective."""
        told = context.extras.get(EXTRA)
        if told is None:
            return None
        # A group of its own: the thread of a snapshot and that of a checkpoint may talk at the same time.
        group = dist.new_group(backend="gloo", timeout=context.timeout) if context.world_size > 1 else None
        store = MemoryStore(
            VaultOrders.of(told, context.rank),
            fence=(context.incarnation, context.attempt),
            peers=Peers(rank=context.rank, world_size=context.world_size, group=group),
        )
        return cls(store, [(int(step), str(why)) for step, why in told["refused"]])

    def skipped(self, *, newer_than: int) -> list[tuple[int, str]]:
        """(step, why) of snapshots newer than what was resumed from, newest first."""
        told = [one for one in (*self.store.passed_over, *self._refused) if one[0] > newer_than]
        return sorted(told, reverse=True)

    def report(self, say: Say) -> None:
        """Never waits."""
        for result in self.store.drain():
            if result.failed is not None:
                reason = _NUMBER.sub("#", result.failed)
                if reason != self._reason:
                    sentence = f"snapshot of step {result.step} not kept in memory: {result.failed}"
                    say(EventKind.SNAPSHOT_FAILED, sentence, {"step": result.step, "reason": result.failed})
                self._reason, self._kept = reason, False
            elif not self._kept:
                data = {"stall_s": round(result.stall_s, 6), "total_s": round(result.total_s, 6)}
                say(
                    EventKind.SNAPSHOT_KEPT,
                    f"snapshots are kept in memory from step {result.step} on, {result.bytes / 1e6:.1f} MB a copy",
                    {"step": result.step, "bytes": result.bytes, **data},
                )
                self._reason, self._kept = None, True
