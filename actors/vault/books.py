"""The books of one node's vault: which snapshots it holds, for whom, and what it refuses.

No sockets here: `vault_server` lets others put and get. Safe to use from several threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.recovery.snapshots import Copy, Fence, Generation

HEADROOM = 0.05
"""Part of the node's memory that stays free whatever the limit says: a vault must never be what a job dies of."""


class RefusedError(RuntimeError):
    """The vault does not do what it was asked to; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Held:
    """A snapshot in the vault."""

    copy: Copy
    file: int
    """Descriptor of the sealed memory."""


class Vault:
    """`limit_bytes` bounds what is held and promised; `available` tells (free, all) memory of the node, bytes."""

    def __init__(self, node: str, limit_bytes: int, available: Callable[[], tuple[int, int]]) -> None:
        self._node = node
        self._limit_bytes = limit_bytes
        self._available = available
        self._lock = threading.Lock()
        self._held: dict[int, dict[Generation, Held]] = {}
        self._committed: dict[int, Generation] = {}
        self._promised: dict[int, int] = {}
        self._fence: Fence = (0, 0)

    def fence(self, fence: Fence) -> tuple[Copy, ...]:
        """Refuses whoever is older from here on; tells what is held. RefusedError when `fence` is the older one."""
        with self._lock:
            self._check(fence)
            return tuple(held.copy for by in self._held.values() for held in by.values())

    def used_bytes(self) -> int:
        with self._lock:
            return self._used()

    def promise(self, fence: Fence, rank: int, size: int) -> None:
        """Keeps `size` bytes for a snapshot of `rank` that is being made or received, until it is put or the promise
        withdrawn; an unfinished one of the rank goes, it will never be complete. RefusedError without room."""
        with self._lock:
            self._check(fence)
            self._promised.pop(rank, None)
            self._drop_unfinished(rank)
            self._require_room(size)
            free, whole = self._available()
            if free - size < HEADROOM * whole:
                raise RefusedError(
                    f"a snapshot of {size} bytes does not fit: {self._node} has {free} of {whole} bytes of memory left"
                )
            self._promised[rank] = size

    def withdraw(self, rank: int) -> None:
        """Nothing is kept free for the rank any more."""
        with self._lock:
            self._promised.pop(rank, None)

    def put(self, fence: Fence, copy: Copy, file: int) -> None:
        """Takes the descriptor of a sealed snapshot over. RefusedError for an older writer and where there is no room;
        the descriptor stays the caller's then."""
        with self._lock:
            self._check(fence)
            self._promised.pop(copy.rank, None)
            self._drop_unfinished(copy.rank)
            self._drop(copy.rank, [g for g in self._held.get(copy.rank, {}) if g == copy.generation])
            self._require_room(copy.bytes)
            self._held.setdefault(copy.rank, {})[copy.generation] = Held(copy, file)

    def commit(self, fence: Fence, rank: int, generation: Generation) -> None:
        """The generation is complete everywhere: the rank's others are needed no more. RefusedError when it is not
        here."""
        with self._lock:
            self._check(fence)
            held = self._held.get(rank, {})
            if generation not in held:
                raise RefusedError(
                    f"{self._node} does not hold the snapshot of rank {rank} after step {generation.step}"
                )
            self._committed[rank] = generation
            self._drop(rank, [other for other in held if other != generation])

    def get(self, rank: int, generation: Generation) -> tuple[Copy, int]:
        """The snapshot and a descriptor of the caller's own. RefusedError when it is not here."""
        with self._lock:
            held = self._held.get(rank, {}).get(generation)
            if held is None:
                raise RefusedError(
                    f"{self._node} does not hold the snapshot of rank {rank} after step {generation.step}"
                )
            return held.copy, os.dup(held.file)

    def clear(self) -> None:
        """Gives everything back."""
        with self._lock:
            for rank in list(self._held):
                self._drop(rank, list(self._held[rank]))
            self._promised.clear()

    def _check(self, fence: Fence) -> None:
        if fence < self._fence:
            raise RefusedError(
                f"attempt {fence[1]} of supervisor {fence[0]} is over: the vault of {self._node} serves attempt "
                f"{self._fence[1]} of supervisor {self._fence[0]}"
            )
        self._fence = fence

    def _require_room(self, size: int) -> None:
        used = self._used()
        if used + size > self._limit_bytes:
            raise RefusedError(
                f"a snapshot of {size} bytes does not fit: the vault of {self._node} has {used} of {self._limit_bytes} "
                "bytes in use (checkpoint.memory.limit_bytes)"
            )

    def _used(self) -> int:
        held = sum(held.copy.bytes for by in self._held.values() for held in by.values())
        return held + sum(self._promised.values())

    def _drop_unfinished(self, rank: int) -> None:
        """All of the rank but what is committed."""
        kept = self._committed.get(rank)
        self._drop(rank, [generation for generation in self._held.get(rank, {}) if generation != kept])

    def _drop(self, rank: int, generations: list[Generation]) -> None:
        for generation in generations:
            os.close(self._held[rank].pop(generation).file)
            if self._committed.get(rank) == generation:
                del self._committed[rank]
