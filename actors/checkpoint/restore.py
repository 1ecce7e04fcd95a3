"""Finding the newest good checkpoint and loading it. Every rank comes to the same decision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.stateful import Stateful

from actors.checkpoint import layout, manifest, rng
from actors.checkpoint.commit import RNG_KEY, describe, first_failure, rank_key
from actors.checkpoint.disk import remove_tree, sync_directory
from actors.checkpoint.manifest import Manifest, ManifestError
from actors.checkpoint.peers import Peers
from actors.checkpoint.staging import snapshot


class CheckpointLoadError(RuntimeError):
    """The checkpoints cannot be listed, or loading one left the state half changed and no other one is
    good.
    """


class UnusableError(RuntimeError):
    """One checkpoint is no good; raised on every rank alike."""

    def __init__(self, reason: str, *, half_loaded: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.half_loaded = half_loaded


class Skipped(NamedTuple):
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was loaded; the same on every rank."""

    step: int
    extras: Mapping[str, Any]
    path: Path
    skipped: tuple[Skipped, ...]
    """Newer checkpoints that are no good, newest first."""
    rng_restored: bool
    """False when the checkpoint was written under another plan."""


class _CountingReader(FileSystemReader):
    """DCP's file reader, which counts the bytes of the parts that it reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.bytes_read = 0

    def _slice_file(self, file: Any, sinfo: Any) -> Any:
        self.bytes_read += sinfo.length
        return super()._slice_file(file, sinfo)


@dataclass(slots=True)
class Reader:
    directory: Path
    peers: Peers
    attempt: str
    plan: Mapping[str, Any]
    remove: Callable[[Path], object] = remove_tree
    """Takes away a directory that was set aside, some time."""
    bytes_read: int = 0
    """Of checkpoints' files, by this rank: each is read once to be verified, and its parts once more to be loaded."""

    def newest_step(self) -> int | None:
        """The step of the newest committed checkpoint by its name, on every rank."""
        names = self._candidates()
        key = layout.parse_committed(names[0]) if names else None
        return key[0] if key is not None else None

    def load_latest(self, state: Mapping[str, Stateful]) -> tuple[LoadResult | None, tuple[Skipped, ...]]:
        """Loads the newest good checkpoint; (None, what was skipped) when there is none."""
        skipped: list[Skipped] = []
        half_loaded = False
        for name in self._candidates():
            try:
                found = self.verify(name)
                rng_restored = self._load(name, found, state)
            except UnusableError as error:
                skipped.append(Skipped(name, error.reason))
                half_loaded = half_loaded or error.half_loaded
                continue
            result = LoadResult(found.step, found.extras, self.directory / name, tuple(skipped), rng_restored)
            return result, tuple(skipped)
        if half_loaded:
            told = "; ".join(f"{one.name}: {one.reason}" for one in skipped)
            raise CheckpointLoadError(f"no checkpoint in {self.directory} could be loaded whole: {told}")
        return None, tuple(skipped)

    def _candidates(self) -> list[str]:
        """Committed names, newest first. Rank 0 lists, once earlier attempts are fenced off and what they left
        unfinished is cleared."""
        answer: tuple[str | None, list[str]] = (None, [])
        if self.peers.leads:
            try:
                self._take_over()
                answer = (None, layout.newest_first(self._names()))
            except OSError as error:
                answer = (describe(error), [])
        failure, found = self.peers.hear(answer)
        if failure is not None:
            raise CheckpointLoadError(f"cannot list {self.directory}: {failure}")
        return found

    def _take_over(self) -> None:
        """Earlier attempts commit nothing from here on. Where no room or right is left for the fence, the attempt
        begins without: its own saves will say what is wrong."""
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            (self.directory / layout.fence_name(self.attempt)).touch()
            sync_directory(self.directory)
        names = self._names()
        if (newer := layout.fenced_by(names, self.attempt)) is not None:
            raise PermissionError(f"attempt {self.attempt} is over: attempt {newer} has taken over")
        for name in layout.older_fences(names, self.attempt):
            (self.directory / name).unlink(missing_ok=True)
        for name in layout.leftovers(names, self.attempt):
            aside = self.directory / layout.aside_name(name)
            with contextlib.suppress(FileNotFoundError):  # its attempt lives and has just committed it
                (self.directory / name).rename(aside)
                self.remove(aside)

    def _names(self) -> list[str]:
        return [path.name for path in self.directory.iterdir()] if self.directory.exists() else []

    def verify(self, name: str) -> Manifest:
        """The manifest of a checkpoint that is whole; UnusableError on every rank otherwise.

        The hashing is spread over the ranks. Files that the manifest does not list are ignored: the hashed
        DCP metadata names only listed ones, so nothing else is ever read.
        """
        found, reason = self.peers.hear(self._manifest(name) if self.peers.leads else None)
        if found is None:
            raise UnusableError(reason)
        mine = sorted(found.files.items())[self.peers.rank :: self.peers.world_size]
        checked = [manifest.check_file(self.directory / name, file, record) for file, record in mine]
        self.bytes_read += sum(record.bytes for _, record in mine)
        told = sorted(damage for one in self.peers.gather(checked) for damage in one if damage is not None)
        if told:
            raise UnusableError("; ".join(told))
        return found

    def _manifest(self, name: str) -> tuple[Manifest | None, str]:
        try:
            found = manifest.read(self.directory / name, layout.MANIFEST_NAME)
        except ManifestError as error:
            return None, str(error)
        key = layout.parse_committed(name)
        if key is None or key[0] != found.step:
            return None, f"manifest describes step {found.step}, the name another one"
        return found, ""

    def _load(self, name: str, found: Manifest, state: Mapping[str, Stateful]) -> bool:
        """Reads into copies first, so that a failure leaves the state as it was. True when RNG was restored
        too.
        """
        same_plan = found.world_size == self.peers.world_size and dict(found.layout) == dict(self.plan)
        target = {key: snapshot(part.state_dict()) for key, part in state.items()}
        if same_plan:
            target[RNG_KEY] = {rank_key(self.peers.rank): b""}
        self._read(name, target)
        failure: str | None = None
        try:
            for key, part in state.items():
                part.load_state_dict(target[key])
            if same_plan:
                rng.restore(target[RNG_KEY][rank_key(self.peers.rank)])
        except Exception as error:
            failure = describe(error)
        for rank, told in enumerate(self.peers.gather(failure)):
            if told is not None:
                raise UnusableError(f"rank {rank} could not take its state: {told}", half_loaded=True)
        return same_plan

    def _read(self, name: str, target: dict[str, Any]) -> None:
        reader = _CountingReader(self.directory / name)
        try:
            load(
                target,
                storage_reader=reader,
                process_group=self.peers.group,
                no_dist=self.peers.group is None,
            )
        except CheckpointException as error:  # a BaseException, raised alike on every rank
            rank, reason = first_failure(error)
            raise UnusableError(f"rank {rank} could not read it: {reason}") from None
        finally:
            self.bytes_read += reader.bytes_read
