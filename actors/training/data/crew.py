"""The processes that tokenise the shards of a preparation, and what is left for them to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors.training.data.claims import Claims
from actors.training.data.documents import Shard
from actors.training.data.files import SourceError
from actors.training.data.shards import ShardSummary, read_summary, shard_document

POLL_S = 0.2


class PreparationError(ValueError):
    """A preparation that cannot be done; the message says why and what would be right."""


@dataclass(frozen=True)
class Progress:
    shards_done: int
    shards: int
    tokens: int
    stage: str
    """`training the tokenizer`, `tokenising`, `putting together`."""


class ShardWork:
    """This participant's part of the shards: processes that tokenise, fed by a thread each."""

    def __init__(
        self, folder: Path, shards: Sequence[Shard], claims: Claims, report: Callable[[Progress], None]
    ) -> None:
        self._folder, self._shards, self._claims, self._report = folder, shards, claims, report
        self._lock = threading.Lock()
        self._left = set(range(len(shards)))
        self._busy: set[int] = set()
        self._finished: dict[int, ShardSummary] = {}
        self._failure: Exception | None = None

    def finish(self, setup: dict[str, Any], workers: int) -> list[ShardSummary]:
        """The summaries of all shards, once every one is there, whoever did it. Raises the first failure."""
        self._look()
        count = max(1, min(workers, len(self._left)))
        processes = [start_worker(setup) for _ in range(count)] if self._left else []
        threads = [threading.Thread(target=self._feed, args=(p,), daemon=True) for p in processes]
        try:
            for thread in threads:
                thread.start()
            while running := [thread for thread in threads if thread.is_alive()]:
                running[0].join(POLL_S)
                self._say()
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if self._failure is not None:
            raise self._failure
        self._look()
        self._say()
        return [self._finished[index] for index in range(len(self._shards))]

    def _say(self) -> None:
        with self._lock:
            done = list(self._finished.values())
        self._report(Progress(len(done), len(self._shards), sum(s.tokens for s in done), "tokenising"))

    def _look(self) -> None:
        """Finds what is finished, by whomever."""
        for index in sorted(self._left):
            summary = read_summary(self._folder, index)
            if summary is not None:
                with self._lock:
                    self._left.discard(index)
                    self._finished[index] = summary

    def _feed(self, process: subprocess.Popen[str]) -> None:
        try:
            while self._failure is None and self._left:
                index = self._next()
                if index is None:
                    time.sleep(POLL_S)
                    continue
                self._tokenize(process, index)
        except Exception as error:
            self._failure = self._failure or error

    def _next(self) -> int | None:
        """A shard that is now this participant's; None when others have all that is left."""
        with self._lock:
            waiting = sorted(self._left - self._busy)
        for index in waiting:
            summary = read_summary(self._folder, index)
            with self._lock:
                if index in self._busy or index not in self._left:
                    continue
                if summary is not None:
                    self._left.discard(index)
                    self._finished[index] = summary
                    continue
                self._busy.add(index)
            if self._claims.take(f"{index:06d}"):
                return index
            with self._lock:
                self._busy.discard(index)
        return None

    def _tokenize(self, process: subprocess.Popen[str], index: int) -> None:
        shard = self._shards[index]
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"index": index, "shard": shard_document(shard)}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        self._claims.release(f"{index:06d}")
        if not answer:
            code = process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise PreparationError(
                f"a worker died on {shard.file.path!r} ({how}); "
                "if memory ran out, give fewer --workers. What is finished is kept: run the same command again"
            )
        error = json.loads(answer).get("error")
        if error is not None:
            raise SourceError(error)
        summary = read_summary(self._folder, index)
        assert summary is not None
        with self._lock:
            self._busy.discard(index)
            self._left.discard(index)
            self._finished[index] = summary


def start_worker(setup: dict[str, Any]) -> subprocess.Popen[str]:
    """Called by the main thread: a worker ends with the thread that started it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "actors.training.data.worker", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        # Processes are the parallelism: threads of the tokenizer in each would only get in each other's way.
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(setup) + "\n")
    process.stdin.flush()
    return process
