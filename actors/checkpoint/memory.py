"""MemoryStore: the snapshots of a gang in the vaults of its nodes, as the training loop uses them.

A snapshot is one copy of the state into memory, at the end of a step; what follows (digest, handing over, the copies at
partners, the agreement that all ranks have done so) is done by a thread over a group of its own while training goes on.
The generation before stays until all ranks have agreed on the new one, so there is a complete one at every moment.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.distributed.checkpoint.stateful import Stateful

from actors.checkpoint import packed, rng
from actors.checkpoint.commit import describe
from actors.checkpoint.peers import Peers
from actors.checkpoint.staging import non_finite
from actors.vault import memory
from actors.vault.books import RefusedError
from actors.vault.client import VaultClient
from actors.vault.server import Address
from orchestrator.recovery.snapshots import Copy, Fence, Generation

SLACK_BYTES = 64 << 10
"""Room for a snapshot to be larger than the one before: digits of the step, state of generators."""


@dataclass(frozen=True, slots=True)
class VaultOrders:
    """What the supervisor told this rank about vaults."""

    addresses: Mapping[str, Address]
    """Every vault of the job that answered, by node."""
    node: str
    """Of this rank."""
    partners: tuple[str, ...]
    """Nodes that keep copies of this rank's snapshots."""
    plan: str
    restorable: tuple[tuple[Generation, tuple[str, ...]], ...] = ()
    """What all ranks can go on from, newest first, and who has this rank's part, nearest first."""

    @classmethod
    def of(cls, told: Mapping[str, Any], rank: int) -> VaultOrders:
        """From the JSON values in `RankContext.extras`, as `actors.vault.job` makes them."""
        addresses = {node: Address(**address) for node, address in told["addresses"].items()}
        node = told["homes"][rank]
        return cls(
            addresses=addresses,
            node=node,
            partners=tuple(told["partners"].get(node, ())),
            plan=told["plan"],
            restorable=tuple(
                (Generation(*one["generation"]), tuple(one["sources"][rank])) for one in told["restorable"]
            ),
        )


@dataclass(frozen=True, slots=True)
class KeepResult:
    """What became of one snapshot; the same on every rank but for the times."""

    step: int
    bytes: int = 0
    """Of all ranks, one copy each."""
    failed: str | None = None
    stall_s: float = 0.0
    """Time the training loop stood still for it, on this rank."""
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Restored:
    step: int
    extras: Mapping[str, Any]
    origin: str
    """`memory`: every rank found its snapshot on its own node; `partner`: some did not."""
    fetched: tuple[int, ...]
    """Ranks that had theirs from another node."""
    bytes: int
    """Of all ranks."""


class MemoryStore:
    """`save`, `wait` and `load` are collective: every rank calls them in the same order. None of them raises because of
    what becomes of a snapshot."""

    def __init__(self, orders: VaultOrders, *, fence: Fence, peers: Peers) -> None:
        self._orders = orders
        self._fence = fence
        self._peers = peers
        self._partners = [orders.addresses[node] for node in orders.partners if node in orders.addresses]
        own = orders.addresses.get(orders.node)
        self._client = VaultClient(own, fence) if own is not None else None
        if self._client is not None:
            self._client.hold()
        self._thread: threading.Thread | None = None
        self._turn = threading.Lock()
        self._busy = False
        """The snapshot before is on its way, and this rank has not said yet which it leaves out meanwhile."""
        self._due = 0
        """The newest step whose snapshot was left out, as far as this rank knows."""
        self._left_out = 0
        """No rank takes a snapshot up to this step: agreed."""
        self._spare: int | None = None
        """Descriptor of allocated memory for the next snapshot."""
        self._rewinds = 0
        self._results: list[KeepResult] = []
        self.passed_over: list[tuple[int, str]] = []
        """(step, why) of what the last `load` could not use."""

    def rewound(self) -> None:
        """The ranks have gone back to a checkpoint: what was taken before stands for work that is undone."""
        self.wait()
        self._rewinds += 1
        self._due = self._left_out = 0

    def save(self, step: int, state: Mapping[str, Stateful], extras: Mapping[str, Any]) -> bool:
        """Copies the state as of `step` finished steps and returns. While the snapshot before is still on its way, this
        one is left out, by all ranks alike, instead of waited for: False then."""
        began = time.monotonic()
        with self._turn:
            if self._busy:
                self._due = step
                return False
        self.wait()  # for the last words of the ranks about the one before
        if step <= self._left_out:
            return False
        self._busy = True
        failure: str | None = None
        file: int | None = None
        try:
            file = self._take(state, extras)
        except Exception as error:
            failure = _sentence(error)
        generation = Generation(*self._fence, self._rewinds, step)
        stall_s = time.monotonic() - began

        def keep() -> None:
            result = self._keep(generation, file, failure)
            self._results.append(replace(result, stall_s=stall_s, total_s=time.monotonic() - began))

        self._thread = threading.Thread(target=keep, name=f"snapshot-{step}", daemon=True)
        self._thread.start()
        return True

    def wait(self) -> None:
        """Returns when no snapshot is on its way any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Gives up what this process holds; what the vaults hold stays theirs. Not collective."""
        self.wait()
        if self._client is not None:
            self._client.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def drain(self) -> list[KeepResult]:
        """Snapshots whose fate is known since the last call, oldest first. Never blocks."""
        done, self._results = self._results, []
        return done

    def load(self, state: Mapping[str, Stateful], *, newer_than: int) -> Restored | None:
        """Loads the newest generation that is complete and whole, with a step of at least `newer_than`; None when there
        is none, and the state is as it was. RNG included: it is the same plan."""
        self.passed_over = []
        for generation, sources in self._orders.restorable:
            if generation.step < newer_than:
                return None
            if (restored := self._load(generation, sources, state)) is not None:
                return restored
        return None

    def _take(self, state: Mapping[str, Stateful], extras: Mapping[str, Any]) -> int:
        """This rank's state in memory of its own. RefusedError, OSError, TypeError."""
        tensors = packed.leaves(state)
        header = packed.describe(tensors, rng=rng.capture(), extras=extras)
        needed = packed.packed_bytes(tensors, header)
        file, self._spare = self._spare, None
        if file is not None and os.fstat(file).st_size < needed:
            os.close(file)
            file = None
        if file is None:
            file = self._room(needed)
        try:
            packed.pack(tensors, header, file)
        except BaseException:
            os.close(file)
            raise
        return file

    def _room(self, size: int) -> int:
        self._vault.promise(self._peers.rank, size)
        return memory.new_file(size)

    @property
    def _vault(self) -> VaultClient:
        if self._client is None:
            raise RefusedError(f"the vault of node {self._orders.node} did not start")
        return self._client

    def _keep(self, generation: Generation, file: int | None, failure: str | None) -> KeepResult:
        """The thread's part. An error of the group means that a peer is gone: the attempt is over then."""
        try:
            size = os.fstat(file).st_size if file is not None else 0
            if file is not None:
                failure = self._hand_over(generation, file)
                os.close(file)
            told = self._peers.gather((failure, size))
            failed = next(
                (f"rank {rank}: {why}" for rank, (why, _) in enumerate(told) if why is not None), None
            )
            if failed is None:
                failed = self._commit(generation)
                self._prepare(size)
            self._agree()
            return KeepResult(generation.step, sum(size for _, size in told), failed)
        except Exception as error:
            return KeepResult(generation.step, failed=f"the ranks could not agree: {describe(error)}")

    def _agree(self) -> None:
        """The ranks tell one another which snapshots they have left out meanwhile, so that all leave out the same.

        A rank that has told leaves out none any more before it has heard the others, which are at the same point: it
        waits that moment in `save`.
        """
        with self._turn:
            self._busy = False
            due = self._due
        self._left_out = max(self._peers.gather(due))

    def _hand_over(self, generation: Generation, file: int) -> str | None:
        """To the own vault and the partners'; why not, if not."""
        try:
            memory.seal(file)
            with packed.unpacked(file) as held:
                if (bad := non_finite(held.tensors)) is not None:
                    return bad
            self._put(generation, file)
        except Exception as error:  # whatever it is: the peers wait for this rank's word
            return _sentence(error)
        return None

    def _put(self, generation: Generation, file: int, holders: Sequence[str] = ()) -> None:
        """Into the own vault and the partners', but for those that hold it. RefusedError, OSError."""
        rank, node = self._peers.rank, self._orders.node
        if node not in holders:
            copy = Copy(
                node, rank, generation, os.fstat(file).st_size, memory.digest(file), self._orders.plan
            )
            self._vault.put(copy, file)
        missing = set(self._orders.partners).difference(self._orders.addresses)
        if missing:
            raise RefusedError(
                f"the vault of node {min(missing)}, which keeps the copies of rank {rank}, did not start"
            )
        for partner in self._partners:
            if partner.node not in holders:
                self._vault.copy(rank, generation, partner)

    def _commit(self, generation: Generation) -> str | None:
        """Lets the generation before go. One that stays is no harm to anybody but the node's memory."""
        try:
            self._vault.commit(self._peers.rank, generation, self._partners)
        except RefusedError as error:
            return _sentence(error)
        return None

    def _prepare(self, size: int) -> None:
        """Memory for the next snapshot, made ready while nobody waits: the kernel clears each of its pages first."""
        with contextlib.suppress(RefusedError, OSError):
            self._spare = self._room(size + SLACK_BYTES)

    def _load(
        self, generation: Generation, sources: Sequence[str], state: Mapping[str, Stateful]
    ) -> Restored | None:
        """All ranks load the generation, or none does."""
        with contextlib.ExitStack() as held:
            found: tuple[int, str] | None = None
            failure: str | None = None
            try:
                found = self._find(generation, sources)
                held.callback(os.close, found[0])
                content = held.enter_context(packed.unpacked(found[0]))
                packed.require_same(content, packed.leaves(state))
            except Exception as error:  # whatever it is: the peers wait for this rank's word
                failure = _sentence(error)
            size = os.fstat(found[0]).st_size if found else 0
            told = self._peers.gather((failure, found is not None and found[1] != self._orders.node, size))
            failed = next(
                (f"rank {rank}: {why}" for rank, (why, _, _) in enumerate(told) if why is not None), None
            )
            if failed is not None or found is None:
                self.passed_over.append((generation.step, failed or ""))
                return None
            for part, stateful in state.items():
                stateful.load_state_dict(dict(content.tensors[part]))
            rng.restore(content.rng)
            extras = dict(content.extras)
            self._again(generation, found[0], sources)
        fetched = tuple(rank for rank, (_, elsewhere, _) in enumerate(told) if elsewhere)
        origin = "partner" if fetched else "memory"
        return Restored(generation.step, extras, origin, fetched, sum(size for _, _, size in told))

    def _find(self, generation: Generation, sources: Sequence[str]) -> tuple[int, str]:
        """(descriptor, node) of this rank's snapshot, from the nearest that has it whole. RefusedError says of each why
        not."""
        told: list[str] = []
        for node in sources:
            try:
                if node not in self._orders.addresses:
                    raise RefusedError(f"the vault of {node} does not answer")
                return self._vault.get(self._peers.rank, generation, self._orders.addresses[node]), node
            except RefusedError as error:
                told.append(str(error))
        raise RefusedError("; ".join(told))

    def _again(self, generation: Generation, file: int, holders: Sequence[str]) -> None:
        """What was loaded is kept where this attempt's ranks and partners live, while they begin: the next loss finds
        it complete again. `holders` have it already."""
        kept = os.dup(file)

        def keep() -> None:
            try:
                # A failure is none of the job's: the next snapshot is told of, and it will fail alike.
                with contextlib.suppress(RefusedError, OSError):
                    self._put(generation, kept, holders)
                with contextlib.suppress(RefusedError):
                    self._vault.commit(self._peers.rank, generation, self._partners)
            finally:
                os.close(kept)

        self._thread = threading.Thread(target=keep, name=f"snapshot-{generation.step}", daemon=True)
        self._thread.start()


def _sentence(error: BaseException) -> str:
    return str(error) if isinstance(error, RefusedError) else describe(error)
