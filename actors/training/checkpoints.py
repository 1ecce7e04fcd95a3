"""When the loop saves, resumes and goes back, and what it says about it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from actors.checkpoint import CheckpointStore, LoadResult, SaveResult
from actors.checkpoint.disk import never_writable, write_durably
from actors.checkpoint.layout import MANIFEST_NAME
from actors.training.context import RankContext
from actors.training.engine import Engine
from actors.training.snapshots import Snapshots
from orchestrator.lifecycle.reports import EventKind
from orchestrator.spec import JobSpec

T = TypeVar("T")
TIDY_S = 5.0
"""Wait of a job that has succeeded for the removal of what it pruned; nobody removes the rest."""
BEST_NAME = "best.json"
"""Beside the checkpoints: which one had the smallest held-back loss."""


@dataclass(frozen=True)
class Best:
    step: int
    loss: float
    """Held-back loss, nats."""


class Checkpoints:
    """The checkpoints of one attempt. All calls are collective; rank 0 reports."""

    def __init__(self, spec: JobSpec, context: RankContext, engine: Engine) -> None:
        self._spec = spec
        self._context = context
        self._engine = engine
        self._state = engine.state()
        self._saved_step: int | None = None
        self._failure: str | None = None
        """Why the newest save failed; None when it was committed."""
        self._best: Best | None = None
        """The smallest held-back loss so far, the same on every rank; its checkpoint may not be committed yet."""
        self._named: Best | None = None
        """What `best.json` says. Rank 0 alone."""
        self._committed: dict[int, str] = {}
        """Step and name of what this attempt committed or resumed from."""
        directory = spec.checkpoint.directory
        # A folder of the job's own: two jobs that name one directory neither prune nor resume each other.
        self._directory = (
            Path(directory) / context.job_directory.name
            if directory
            else context.job_directory / "checkpoints"
        )
        # A group of its own: the writer's thread talks over it while training uses the others.
        self._group = (
            dist.new_group(backend="gloo", timeout=context.timeout) if context.world_size > 1 else None
        )
        self._store = CheckpointStore(
            self._directory,
            keep=spec.checkpoint.keep,
            attempt=f"{context.incarnation}-{context.attempt}",
            process_group=self._group,
            rank=context.rank,
            world_size=context.world_size,
            plan=spec.parallelism.model_dump(mode="json"),
        )
        self._snapshots = Snapshots.of(context)

    def resume(self) -> int:
        """Loads the newest good checkpoint; returns the number of finished steps, 0 without one.

        ValueError, on every rank, when none can be written: the work of days would lie nowhere.
        """
        reason = self._hear(lambda: never_writable(self._directory))
        if reason is not None:
            field = "checkpoint.directory: " if self._spec.checkpoint.directory else ""
            raise ValueError(
                f"{field}no checkpoint can be written in {self._directory}: {reason}; must be a directory on storage "
                "that every node sees and may write"
            )
        began = time.monotonic()
        step = self._resume_from_memory(began)
        if step is None:
            step = self._resume_from_storage(began)
        if self._spec.checkpoint.keep_best:
            self._best = self._named = self._hear(self._read_best)
        return step

    def _resume_from_storage(self, began: float) -> int:
        result = self._load()
        if result is None:
            return 0
        self._say(
            EventKind.RESUMED,
            f"resumed after step {result.step} from {result.path.name}",
            {"step": result.step, "path": str(result.path), **self._origin("storage", began)},
        )
        return result.step

    def _resume_from_memory(self, began: float) -> int | None:
        """The step that was loaded; None when storage is to be read."""
        if self._snapshots is None:
            return None
        stored = self._store.newest_step()
        restored = self._snapshots.store.load(self._state, newer_than=stored or 0)
        reached = stored or 0 if restored is None else restored.step
        for step, reason in self._snapshots.skipped(newer_than=reached):
            data = {"step": step, "reason": reason}
            self._say(
                EventKind.SNAPSHOT_SKIPPED, f"snapshot of step {step} in memory skipped: {reason}", data
            )
        if restored is None:
            return None
        if restored.step == stored:
            self._saved_step = stored
        self._engine.restore_progress(restored.extras)
        where = (
            "the memory of the nodes"
            if restored.origin == "memory"
            else "copies in the memory of other nodes"
        )
        data = {"step": restored.step, "bytes": restored.bytes, "fetched": list(restored.fetched)}
        self._say(
            EventKind.RESUMED,
            f"resumed after step {restored.step} from {where}",
            {**data, **self._origin(restored.origin, began)},
        )
        return restored.step

    def _origin(self, name: str, began: float) -> dict[str, object]:
        """Where a state came from, and what that cost."""
        read = self._store.bytes_read()
        return {"from": name, "storage_bytes_read": read, "seconds": round(time.monotonic() - began, 3)}

    def keep_in_memory(self, step: int) -> None:
        """Takes a snapshot after `step` finished steps when one is due."""
        every = self._spec.checkpoint.memory.every
        if self._snapshots is None or not every or step % every:
            return
        with self._engine.meter.between_steps("checkpoint"):
            self._snapshots.store.save(step, self._state, self._extras(step))

    def ensure_one(self, step: int) -> None:
        """Saves the state after `step` finished steps when there is no checkpoint, so that `rewind` finds one."""
        self.save(step, asynchronous=self._spec.checkpoint.asynchronous)

    def rewind(self) -> int:
        """Loads the newest good checkpoint over the state; returns its number of finished steps.

        RuntimeError, on every rank, when there is none.
        """
        self.settle()
        result = self._load()
        if result is None:
            told = f" ({self._failure})" if self._failure is not None else ""
            raise RuntimeError(
                f"training.on_nonfinite is rewind, but no good checkpoint lies in {self._directory}{told}"
            )
        if self._snapshots is not None:
            self._snapshots.store.rewound()
        return result.step

    def is_due(self, step: int) -> bool:
        every = self._spec.checkpoint.every
        return every > 0 and step % every == 0

    def save(self, step: int, *, asynchronous: bool) -> None:
        """Saves the state after `step` finished steps, unless that is what lies there already."""
        if step == self._saved_step:
            return
        protected = {best.step for best in (self._best, self._named) if best is not None}
        self._store.save(
            step, self._state, self._extras(step), asynchronous=asynchronous, protected=protected
        )
        self._saved_step = step

    def _extras(self, step: int) -> dict[str, object]:
        """What is kept beside the tensors: JSON values, the same on every rank."""
        return {
            "step": step,
            "data": {"next_sequence": self._engine.cursor(step), "seed": self._spec.training.seed},
            "plan": self._spec.parallelism.model_dump(mode="json"),
            **self._engine.progress(),
        }

    def best_may_be_unknown(self, step: int) -> bool:
        """Whether the attempt before ended between a checkpoint and the evaluation that was due after it."""
        every = self._spec.training.eval_every
        due = every > 0 and step > 0 and step % every == 0 and step < self._spec.training.steps
        return self._spec.checkpoint.keep_best and due and (self._best is None or self._best.step != step)

    def consider_best(self, step: int, loss: float) -> bool:
        """Keeps the state after `step` finished steps when its held-back loss is the smallest; says whether it is."""
        if not self._spec.checkpoint.keep_best or not math.isfinite(loss):
            return False
        if self._best is not None and loss >= self._best.loss:
            return False
        self._best = Best(step, loss)
        self.save(step, asynchronous=self._spec.checkpoint.asynchronous)
        self.report()
        return True

    def settle(self) -> None:
        """Waits for the save being written and reports what became of it."""
        self._store.wait()
        self.report()

    def finish(self) -> None:
        """Waits for the save being written and reports it.

        RuntimeError on every rank when it failed: a job whose last weights lie nowhere has not succeeded. A repair
        goes on from the last good checkpoint and tries again.
        """
        self.settle()
        self._store.tidy(TIDY_S)
        if self._failure is not None:
            raise RuntimeError(f"the last checkpoint could not be saved: {self._failure}")

    def report(self) -> None:
        """Reports saves that ended since the last call. Never waits; on other ranks than 0 it only forgets them."""
        for result in self._store.drain():
            self._failure = result.failed
            self._tell(result)
        if self._snapshots is not None:
            self._snapshots.report(self._say)
        self._name_best()

    def _load(self) -> LoadResult | None:
        """Loads the newest good checkpoint and tells of those that were no good."""
        result = self._store.load_latest(self._state)
        for name, reason in self._store.skipped:
            self._say(
                EventKind.CHECKPOINT_SKIPPED,
                f"checkpoint {name} skipped: {reason}",
                {"name": name, "reason": reason},
            )
        if result is not None:
            self._saved_step = result.step
            self._committed[result.step] = result.path.name
            self._engine.restore_progress(result.extras)
        return result

    def _tell(self, result: SaveResult) -> None:
        if result.path is not None:
            self._committed[result.step] = result.path.name
            message = f"checkpoint of step {result.step} committed, {result.bytes / 1e6:.1f} MB"
            data = {"step": result.step, "path": str(result.path), "bytes": result.bytes}
            if result.pruned:
                data["pruned"] = list(result.pruned)
            self._say(EventKind.CHECKPOINT_COMMITTED, message, data)
        else:
            self._say(
                EventKind.CHECKPOINT_FAILED,
                f"checkpoint of step {result.step} failed: {result.failed}",
                {"step": result.step, "reason": result.failed},
            )

    def _name_best(self) -> None:
        """Writes `best.json` once the checkpoint of the best evaluation is committed. Rank 0 alone."""
        best = self._best
        if self._context.rank != 0 or best is None or best == self._named or best.step not in self._committed:
            return
        content = {"checkpoint": self._committed[best.step], "step": best.step, "loss": best.loss}
        try:
            write_durably(self._directory / BEST_NAME, (json.dumps(content) + "\n").encode())
        except OSError as error:
            self._say(
                EventKind.CHECKPOINT_FAILED,
                f"{BEST_NAME} could not name the checkpoint of step {best.step} as the best: {error}",
                {"step": best.step, "reason": str(error)},
            )
            return
        self._named = best

    def _read_best(self) -> Best | None:
        """What `best.json` names, if that checkpoint is there and was not found damaged."""
        damaged = {name for name, _ in self._store.skipped}
        try:
            content = json.loads((self._directory / BEST_NAME).read_text())
            name = str(content["checkpoint"])
            if name not in damaged and (self._directory / name / MANIFEST_NAME).is_file():
                return Best(int(content["step"]), float(content["loss"]))
        except (OSError, ValueError, OverflowError, RecursionError, KeyError, TypeError):
            pass  # none yet, or no longer to be read: the next evaluation is the best
        return None

    def _hear(self, find: Callable[[], T]) -> T:
        """What rank 0 finds, on every rank."""
        box: list[Any] = [find() if self._context.rank == 0 else None]
        if self._group is not None:
            dist.broadcast_object_list(box, group=self._group, group_src=0)
        found: T = box[0]
        return found

    def _say(self, kind: EventKind, message: str, data: Mapping[str, object]) -> None:
        if self._context.rank == 0:
            self._context.reporter.event(kind.value, message, data)
