"""CheckpointStore: the checkpoints of one job, as the training loop uses them."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.stateful import Stateful

from actors.checkpoint import layout, rng
from actors.checkpoint.commit import RNG_KEY, SaveResult, Snapshot, Writer, describe, rank_key
from actors.checkpoint.disk import Remover
from actors.checkpoint.peers import Peers
from actors.checkpoint.restore import CheckpointLoadError, LoadResult, Reader, Skipped
from actors.checkpoint.staging import non_finite, snapshot


class CheckpointStore:
    """Saves and loads the state of a gang below `directory`.

    `process_group` is a gloo group over all ranks that nobody else uses (None for a single process): the
    background thread of an asynchronous save talks over it while training uses its own groups. Its timeout
    bounds how long the ranks wait for the slowest writer. `attempt` orders by its numbers and is part of
    the names of unfinished work; `plan` is what the per-rank RNG depends on besides the number of ranks.

    `save`, `wait` and `load_latest` are collective: every rank calls them in the same order.
    """

    def __init__(
        self,
        directory: Path,
        *,
        keep: int,
        attempt: str,
        process_group: dist.ProcessGroup | None,
        rank: int,
        world_size: int,
        plan: Mapping[str, Any] | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}, at least 1 checkpoint must be kept")
        if not layout.ATTEMPT_PATTERN.fullmatch(attempt):
            raise ValueError(
                f"attempt {attempt!r} must be letters, digits, '.', '_' and '-', a letter or digit first"
            )
        if process_group is None:  # DCP warns at every save that it runs alone, which is what was asked for
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        self._directory = directory
        self._keep = keep
        self._attempt = attempt
        self._peers = Peers(rank=rank, world_size=world_size, group=process_group)
        self._plan = dict(plan or {})
        self._thread: threading.Thread | None = None
        self._finished: deque[SaveResult] = deque()
        self._bytes_read = 0
        self._remover = Remover()
        self.skipped: tuple[Skipped, ...] = ()
        """What the last `load_latest` found to be no good, newest first; also when it returned None."""

    def save(
        self,
        step: int,
        state: Mapping[str, Stateful],
        extras: Mapping[str, Any],
        asynchronous: bool = True,
        protected: Collection[int] = (),
    ) -> None:
        """Saves `state` as of `step` finished steps. `extras` are JSON values; rank 0's are stored. Checkpoints of the
        steps `protected` are not pruned.

        Returns when the state is copied (asynchronous) or when the save is over. Never raises because a
        save failed: `drain` tells. An earlier save still being written is waited for first.
        """
        started = time.monotonic()
        self.wait()
        taken = self._take(step, state, extras)
        writer = Writer(
            directory=self._directory,
            peers=self._peers,
            attempt=self._attempt,
            keep=self._keep,
            plan=self._plan,
            damaged=frozenset(one.name for one in self.skipped),
            protected=frozenset(protected),
            remove=self._remover.remove,
        )

        def write(stall_s: float | None) -> None:
            result = writer.commit(taken)
            total_s = time.monotonic() - started
            self._finished.append(
                replace(result, stall_s=total_s if stall_s is None else stall_s, total_s=total_s)
            )

        if asynchronous:
            stall_s = time.monotonic() - started
            # A daemon: a gang that ends by an error must not wait for a writer whose peers are gone.
            self._thread = threading.Thread(
                target=write, args=(stall_s,), name=f"checkpoint-{step}", daemon=True
            )
            self._thread.start()
        else:
            write(None)

    def _take(self, step: int, state: Mapping[str, Stateful], extras: Mapping[str, Any]) -> Snapshot:
        """Copies this rank's part. A failure is carried to the agreement, so that no rank waits for
        another.
        """
        copies: dict[str, Any] = {}
        failure: str | None = None
        try:
            if RNG_KEY in state:
                raise ValueError(f"the key {RNG_KEY!r} of the state is reserved")
            copies = {key: snapshot(part.state_dict()) for key, part in state.items()}
            failure = non_finite(copies)
            copies[RNG_KEY] = {rank_key(self._peers.rank): rng.capture()}
        except Exception as error:
            failure = describe(error)
        return Snapshot(step=step, state=copies, extras=dict(extras), failure=failure)

    def wait(self) -> None:
        """Returns when no save is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def drain(self) -> list[SaveResult]:
        """Saves that ended since the last call, oldest first. Never blocks and never raises.

        Ranks see a save end at slightly different times: let one rank report, or call `wait` before.
        """
        results: list[SaveResult] = []
        while self._finished:
            results.append(self._finished.popleft())
        return results

    def tidy(self, patience_s: float) -> None:
        """Waits until what was pruned or left over is gone, at most `patience_s`."""
        self._remover.settle(patience_s)

    def _reader(self) -> Reader:
        return Reader(
            directory=self._directory,
            peers=self._peers,
            attempt=self._attempt,
            plan=self._plan,
            remove=self._remover.remove,
        )

    def newest_step(self) -> int | None:
        """The step of the newest committed checkpoint by its name alone: none of its files is read. None without one,
        and where the directory cannot be listed. Collective."""
        reader = self._reader()
        try:
            return reader.newest_step()
        except CheckpointLoadError:
            return None

    def bytes_read(self) -> int:
        """Bytes that all ranks have read of checkpoints so far. Collective."""
        return sum(self._peers.gather(self._bytes_read))

    def load_latest(self, state: Mapping[str, Stateful]) -> LoadResult | None:
        """Loads the newest checkpoint that is whole into `state`, and this rank's RNG when the plan is the
        same.

        Damaged ones are skipped with a reason (`skipped`), unfinished ones of earlier attempts removed.
        None when no good one exists; the state is then unchanged. CheckpointLoadError when the directory
        cannot be listed, or when the state was left half loaded.
        """
        self.wait()
        reader = self._reader()
        try:
            result, self.skipped = reader.load_latest(state)
        finally:
            self._bytes_read += reader.bytes_read
        return result
