"""Ranks on this machine: processes forked from one that has torch imported, over gloo on the loopback interface.

For checks that need a whole plan and no cluster. The ranks end with the process that forked them, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from actors import processes
from orchestrator.recovery.failure import signal_name

Program = Callable[[int, Callable[[], "dist.Store"]], Any]  # type: ignore[name-defined]
"""(rank, store) -> an answer that can be pickled. `store()` makes the rendezvous store."""


@dataclass(frozen=True)
class RankFailure:
    """How one rank failed."""

    reason: str
    """One line for people: the message of a ValueError, `Type: message` of any other exception."""
    traceback: str
    refused: bool = False
    """It raised a ValueError: what it was given is not right."""


class RankFailedError(RuntimeError):
    """Some ranks raised or died; carries every traceback."""

    def __init__(self, failures: dict[int, RankFailure]) -> None:
        super().__init__(
            "\n".join(f"rank {rank}:\n{one.traceback}" for rank, one in sorted(failures.items()))
        )
        self.failures = failures


def run_ranks(world: int, program: Program, *, deadline_s: float) -> list[Any]:
    """Runs `program` in `world` forked processes; returns what each returned, by rank.

    RankFailedError as soon as one fails, or when some give no answer for `deadline_s`. The calling process must have no
    thread beside its main one: it is forked.
    """
    torch.set_num_threads(1)  # a process with a pool of threads must not be forked
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    fork = multiprocessing.get_context("fork")
    parent = os.getpid()
    with tempfile.TemporaryDirectory() as directory:
        rendezvous = str(Path(directory) / "store")

        def body(rank: int, pipe: Connection) -> None:
            processes.die_with_parent(parent)
            try:
                answer = (True, program(rank, lambda: dist.FileStore(rendezvous, world)))  # type: ignore[attr-defined]
            except BaseException as error:
                answer = (False, _failure(error))
            try:
                # Plain pickle: torch's own way through a pipe is shared memory, gone with this process.
                pipe.send_bytes(pickle.dumps(answer))
            finally:
                pipe.close()
                os._exit(0)

        ends, ranks = [], []
        for rank in range(world):
            mine, its = fork.Pipe(duplex=False)
            process = fork.Process(target=body, args=(rank, its), daemon=True)
            process.start()
            its.close()
            ends.append(mine)
            ranks.append(process)
        try:
            return _gather(ends, ranks, deadline_s)
        finally:
            for process in ranks:
                process.kill()
                process.join()


def _failure(error: BaseException) -> RankFailure:
    said = " ".join(str(error).split())
    # As for a job on a cluster: other kinds of ValueError come from libraries as well.
    refused = type(error) is ValueError
    return RankFailure(
        said if refused else f"{type(error).__name__}: {said}", traceback.format_exc(), refused
    )


def _end(code: int | None) -> str:
    return (
        f"was ended by {signal_name(-code)}" if code is not None and code < 0 else f"ended with code {code}"
    )


def _gather(ends: Sequence[Connection], ranks: Sequence[ForkProcess], deadline_s: float) -> list[Any]:
    answers: dict[int, Any] = {}
    failures: dict[int, RankFailure] = {}
    waiting = dict(enumerate(ends))
    until_s = time.monotonic() + deadline_s
    while waiting and not failures:
        ready = wait(list(waiting.values()), timeout=max(0.0, until_s - time.monotonic()))
        if not ready:
            late = f"no answer in {deadline_s:.0f} s"
            raise RankFailedError(dict.fromkeys(waiting, RankFailure(late, late)))
        for rank, end in list(waiting.items()):
            if end not in ready:
                continue
            del waiting[rank]
            try:
                good, answer = pickle.loads(end.recv_bytes())
            except EOFError:
                ranks[rank].join()
                died = f"the process {_end(ranks[rank].exitcode)} without an answer"
                good, answer = False, RankFailure(died, died)
            (answers if good else failures)[rank] = answer
    if failures:
        raise RankFailedError(failures)
    return [answers[rank] for rank in range(len(ends))]
