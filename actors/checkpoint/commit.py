"""Writing one checkpoint: shards, hashes, manifest, and the rename that commits it.

All ranks walk the same steps over the checkpoint group and end with the same result. Nothing here uses the
training group, so it may run in a background thread. A rank's failure is told to all at the next agreement;
whatever happens, the attempt directory is removed and training is not disturbed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save

from actors.checkpoint import layout, manifest
from actors.checkpoint.disk import hash_file, remove_tree, sync_directory, write_durably
from actors.checkpoint.manifest import FileRecord, Manifest
from actors.checkpoint.peers import Peers

RNG_KEY = "rank_rng"
"""Key in the stored state dict below which each rank has its own generators' state."""


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What became of one save; the same on every rank."""

    step: int
    path: Path | None = None
    """The committed checkpoint; None when the save failed."""
    bytes: int = 0
    pruned: tuple[int, ...] = ()
    """Steps of the older checkpoints removed after the commit."""
    failed: str | None = None
    """Why nothing was committed, one sentence."""
    failed_rank: int | None = None
    """The rank that failed; None when that is not known (the group broke)."""
    stall_s: float = field(default=0.0, compare=False)
    """Time the training loop stood still for this save, on this rank."""
    total_s: float = field(default=0.0, compare=False)

    @property
    def committed(self) -> bool:
        return self.failed is None


class _ShardWriter(FileSystemWriter):
    """DCP's file writer, but a full disk is reported as such: torch.save hides the OSError behind one of its own."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, OSError):
                cause = cause.__cause__ or cause.__context__
            if cause is None:
                raise
            if cause.filename is None and cause.errno is not None:
                raise OSError(cause.errno, cause.strerror, str(self.path)) from None
            raise cause from None


class SaveFailedError(RuntimeError):
    """The save cannot be committed; raised on every rank alike."""

    def __init__(self, rank: int | None, reason: str) -> None:
        super().__init__(reason)
        self.rank = rank
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one rank contributes to a checkpoint."""

    step: int
    state: Mapping[str, Any]
    """Copies on the CPU, RNG included."""
    extras: Mapping[str, Any]
    failure: str | None
    """Why this rank has nothing to save."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Commits snapshots below `directory` for one attempt."""

    directory: Path
    peers: Peers
    attempt: str
    keep: int
    plan: Mapping[str, Any]
    damaged: Collection[str]
    """Names that the last load found damaged; they do not count for `keep`."""
    remove: Callable[[Path], object]
    """Takes away a directory that was set aside, some time."""
    protected: Collection[int] = ()
    """Steps whose checkpoints stay beside the `keep` newest."""

    def commit(self, snapshot: Snapshot) -> SaveResult:
        """Writes and commits. Never raises; the failed result says why."""
        writing = self.directory / layout.writing_name(self.attempt, snapshot.step)
        try:
            return self._commit(snapshot, writing)
        except SaveFailedError as error:
            failed, rank = error.reason, error.rank
        except Exception as error:  # the checkpoint group broke: a peer is gone
            failed, rank = f"the ranks could not agree: {describe(error)}", None
        if self.peers.leads:
            remove_tree(writing)
        return SaveResult(step=snapshot.step, failed=failed, failed_rank=rank)

    def _commit(self, snapshot: Snapshot, writing: Path) -> SaveResult:
        self._agree(snapshot.failure)
        self._lead(lambda: self._open(writing))
        self._write_shards(snapshot.state, writing)
        records = self._hash(writing)
        described = Manifest(
            step=snapshot.step,
            attempt=self.attempt,
            world_size=self.peers.world_size,
            layout=self.plan,
            extras=snapshot.extras,
            created_at=time.time(),
            torch_version=torch.__version__,
            files=records,
        )
        name, pruned = self._lead(lambda: self._publish(described, writing))
        return SaveResult(
            step=snapshot.step, path=self.directory / name, bytes=described.total_bytes, pruned=tuple(pruned)
        )

    def _agree(self, failure: str | None) -> None:
        """Ends the save on every rank when one rank has a failure to tell."""
        for rank, told in enumerate(self.peers.gather(failure)):
            if told is not None:
                raise SaveFailedError(rank, f"rank {rank}: {told}")

    def _lead(self, act: Callable[[], Any]) -> Any:
        """Rank 0 acts; every rank gets its answer or its failure."""
        answer: tuple[str | None, Any] = (None, None)
        if self.peers.leads:
            try:
                answer = (None, act())
            except Exception as error:
                answer = (describe(error), None)
        failure, value = self.peers.hear(answer)
        if failure is not None:
            raise SaveFailedError(0, f"rank 0: {failure}")
        return value

    def _open(self, writing: Path) -> None:
        """A fresh attempt directory; one left by this attempt's failed save of the same step is ours to
        remove.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self._names()
        if writing.exists():
            remove_tree(writing)
        writing.mkdir()

    def _write_shards(self, state: Mapping[str, Any], writing: Path) -> None:
        try:
            save(
                dict(state),
                storage_writer=_ShardWriter(writing, single_file_per_rank=True, sync_files=True),
                process_group=self.peers.group,
                no_dist=self.peers.group is None,
            )
        except CheckpointException as error:  # a BaseException, raised alike on every rank
            rank, reason = first_failure(error)
            raise SaveFailedError(rank, f"rank {rank}: {reason}") from None

    def _hash(self, writing: Path) -> dict[str, FileRecord]:
        """Every file's record. Each rank reads back what it wrote: the hashes describe the storage."""
        mine: dict[str, FileRecord] = {}
        failure: str | None = None
        try:
            for path in sorted(writing.glob(f"__{self.peers.rank}_*")):
                mine[path.name] = FileRecord(*hash_file(path))
            if self.peers.leads:
                mine[".metadata"] = FileRecord(*hash_file(writing / ".metadata"))
        except OSError as error:
            failure = describe(error)
        self._agree(failure)
        return {name: record for records in self.peers.gather(mine) for name, record in records.items()}

    def _publish(self, described: Manifest, writing: Path) -> tuple[str, list[int]]:
        """Manifest, rename, pruning: rank 0 alone. The rename is the last act that can fail.

        A newer attempt sets its fence, then removes what older ones are writing, then lists what is committed. So the
        rename either comes before that list, or the fence is seen here, or what is to be renamed is gone.
        """
        write_durably(writing / layout.MANIFEST_NAME, manifest.build(described))
        name = layout.free_name(self._names(), described.step)
        writing.rename(self.directory / name)
        sync_directory(self.directory)
        return name, self._prune(name)

    def _names(self) -> list[str]:
        """What lies in the directory. PermissionError once a newer attempt has taken it over."""
        names = [path.name for path in self.directory.iterdir()]
        if (newer := layout.fenced_by(names, self.attempt)) is not None:
            raise PermissionError(
                f"attempt {self.attempt} is over: attempt {newer} has taken over {self.directory}"
            )
        return names

    def _prune(self, committed: str) -> list[int]:
        """Removes what `keep` leaves over, best effort. Steps of the removed ones, newest first."""
        removed: list[int] = []
        try:
            names = [path.name for path in self.directory.iterdir()]
        except OSError:
            return removed
        for name in layout.superfluous(
            names, committed=committed, damaged=self.damaged, keep=self.keep, protected=self.protected
        ):
            aside = self.directory / layout.pruned_name(name)
            try:
                (self.directory / name).rename(aside)
            except OSError:
                continue
            self.remove(aside)
            key = layout.parse_committed(name)
            assert key is not None, f"{name} is not the name of a committed checkpoint"
            removed.append(key[0])
        return removed


def rank_key(rank: int) -> str:
    """Key of one rank's generators below `RNG_KEY`."""
    return f"rank-{rank:05d}"


def describe(error: BaseException) -> str:
    """One line for people."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def first_failure(error: CheckpointException) -> tuple[int, str]:
    """(rank, reason) of the lowest rank that failed inside DCP."""
    rank = min(error.failures)
    return rank, describe(error.failures[rank][0])
