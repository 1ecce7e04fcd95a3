"""The process ranks are forked from: torch and the rank program imported once, then forks in milliseconds.

    python -m actors.zygote MODULE    (standard input: a stream socket to the node agent, JSON lines both ways)

No thread runs when it forks: a fork copies only the calling thread, and a lock held by another would stay locked.
It ends, and all its ranks with it, when the agent does: end of the socket, or SIGTERM from the kernel.

Requests: `listen` (opens the socket the rendezvous of the next attempt is served on), `fork`, `kill`.
Answers: `warm`, `listening`, `forked`, `exited`.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from actors import processes
from actors.messages import Lines

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PRELOADED = (
    "torch",
    "torch.distributed",
    "actors.rank",
)
"""Imported before the first fork, besides the module of the rank program."""


class Zygote:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._lines = Lines(channel)
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._children: dict[int, tuple[int, int, int]] = {}
        """pid -> (attempt, rank, pidfd)"""
        self._listener: socket.socket | None = None

    def serve(self) -> None:
        """Works until the agent closes its end."""
        while not self._lines.ended:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    for request in self._lines.receive():
                        self._answer(request)
                else:
                    self._reap(int(key.data))

    def end_ranks(self) -> None:
        for pid in self._children:
            _kill(pid)
        for pid in self._children:
            os.waitpid(pid, 0)

    def _answer(self, request: dict[str, Any]) -> None:
        match request["do"]:
            case "listen":
                self._listen(request["host"])
            case "fork":
                for rank in request["ranks"]:
                    self._fork({**request["shared"], **rank})
                if self._listener is not None:
                    self._listener.close()
                    self._listener = None
            case "kill":
                for pid, (attempt, _, _) in self._children.items():
                    if attempt <= request["attempt"]:
                        _kill(pid)

    def _listen(self, host: str) -> None:
        """Opened before any rank exists: no port is guessed, and a rank that connects early waits in the backlog."""
        if self._listener is not None:
            self._listener.close()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(socket.SOMAXCONN)
        self._send({"is": "listening", "port": self._listener.getsockname()[1]})

    def _fork(self, order: dict[str, Any]) -> None:
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_rank(order, zygote)
        pidfd = os.pidfd_open(pid)
        self._children[pid] = (order["attempt"], order["rank"], pidfd)
        self._selector.register(pidfd, selectors.EVENT_READ, pid)
        self._send({"is": "forked", "attempt": order["attempt"], "rank": order["rank"], "pid": pid})

    def _become_rank(self, order: dict[str, Any], zygote: int) -> NoReturn:
        """In the child: cut every tie to the zygote but the kernel's, then run the rank program."""
        code = 1
        try:
            os.setsid()
            processes.die_with_parent(zygote)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._selector.close()
            self._channel.close()
            for _, _, pidfd in self._children.values():
                os.close(pidfd)
            listener = None
            if self._listener is not None:
                if order["rank"] == 0:
                    listener = self._listener.detach()
                else:
                    self._listener.close()
            _redirect(Path(order["log"]))
            from actors import rank

            code = rank.run(order, listener)
        except BaseException:
            traceback.print_exc()
        finally:
            _leave(code)

    def _reap(self, pid: int) -> None:
        attempt, rank, pidfd = self._children.pop(pid)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        processes.signal_group(pid, signal.SIGKILL)  # what the rank itself may have started
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._send({"is": "exited", "attempt": attempt, "rank": rank, "code": code})

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._lines.send(message)
        except OSError:
            self._lines.ended = True


def _kill(pid: int) -> None:
    """SIGKILL to a rank, which may not have made its own process group yet, and to all it started."""
    processes.signal_quietly(pid, signal.SIGKILL)
    processes.signal_group(pid, signal.SIGKILL)


def _leave(code: int) -> NoReturn:
    """Ends a rank without the exit handlers it inherited from the zygote."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


class LossyFile(io.FileIO):
    """A log file: what finds no room on its disk is lost. Training must not end for want of a line in its log."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes

    @classmethod
    def stream(cls, descriptor: int) -> io.TextIOWrapper:
        """Text, written line by line; a file name that is no UTF-8 is shown with its bytes escaped."""
        raw = cls(descriptor, "w", closefd=False)
        return io.TextIOWrapper(
            io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace", line_buffering=True
        )


def _redirect(log: Path) -> None:
    """Standard output and error go to the rank's own file, appended line by line; standard input is empty.

    Where that file cannot be made they go on to the zygote's: storage is needed by checkpoints, which say so.
    """
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    except OSError as error:
        print(f"the log of a rank cannot be written: {error}; it follows here", file=sys.stderr)
    else:
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    sys.stdout, sys.stderr = LossyFile.stream(1), LossyFile.stream(2)


def warm(program: str) -> float:
    """Imports everything ranks need; returns the seconds it took. One that fails to import fails again in the rank."""
    began = time.monotonic()
    for name in (*PRELOADED, program.partition(":")[0]):
        try:
            importlib.import_module(name)
        except Exception:
            traceback.print_exc()
    gc.collect()
    gc.freeze()  # the collector would write to, and so copy, every page shared with the ranks
    return time.monotonic() - began


def main(program: str, agent: int) -> None:
    channel = socket.socket(fileno=os.dup(0))
    zygote = Zygote(channel)

    def end(_number: int, _frame: FrameType | None) -> None:
        zygote.end_ranks()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes.die_with_parent(agent, signal.SIGTERM)
    seconds = warm(program)
    threads = len(list(Path("/proc/self/task").iterdir()))
    zygote._send({"is": "warm", "pid": os.getpid(), "seconds": seconds, "threads": threads})
    zygote.serve()
    zygote.end_ranks()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
