"""The agent's side of a zygote: starting it, asking it, hearing from it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from actors.messages import Lines, encode
from orchestrator.recovery.timeouts import ZYGOTE_END_S


class ZygoteLink:
    """A zygote process. Made in a thread that lives as long as the agent: its end ends the zygote (kernel's rule)."""

    def __init__(self, program: str, threads: int) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        # A pool of threads made by an import would be alive at the fork.
        environment |= {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "actors.zygote", program, str(os.getpid())],
            stdin=theirs.fileno(),
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self._channel = ours
        self._writer: asyncio.StreamWriter | None = None
        self._port: asyncio.Future[int] | None = None
        self._gone = False
        self.warm: Mapping[str, Any] | None = None
        """What the zygote said once everything was imported."""

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    async def listen(self, heard: Callable[[Mapping[str, Any]], None], lost: Callable[[], None]) -> None:
        """Passes what the zygote says of its ranks to `heard` until it is gone, then calls `lost`."""
        reader, self._writer = await asyncio.open_connection(sock=self._channel, limit=Lines.LIMIT_BYTES)
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["is"] == "warm":
                    self.warm = message
                elif message["is"] == "listening" and self._port is not None:
                    self._port.set_result(message["port"])
                    self._port = None
                else:
                    heard(message)
        except ConnectionError:
            pass  # what one says that died with a request unread
        finally:
            self._gone = True
            if self._port is not None:
                self._port.cancel()
            lost()

    async def open_rendezvous(self, host: str) -> int:
        """The port of a socket that rank 0 of the next fork will serve the store on. ConnectionError without zygote."""
        if self._gone:
            raise ConnectionError("the zygote is gone")
        if self._port is None:
            self._port = asyncio.get_running_loop().create_future()
            self._ask({"do": "listen", "host": host})
        port = self._port
        await asyncio.wait({port})  # a caller that gives up leaves the answer to the next one
        if port.cancelled():
            raise ConnectionError("the zygote is gone")
        return port.result()

    def fork(self, shared: Mapping[str, Any], ranks: list[dict[str, Any]]) -> None:
        self._ask({"do": "fork", "shared": shared, "ranks": ranks})

    def kill(self, attempt: int) -> None:
        """SIGKILL to the ranks of `attempt` and earlier ones; their ends are heard of."""
        self._ask({"do": "kill", "attempt": attempt})

    def end(self, grace_s: float = ZYGOTE_END_S) -> None:
        """Ends the zygote and all its ranks; returns when the zygote is gone (it waits for its ranks)."""
        self._process.terminate()  # not by id: one that was waited for may be another's now
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: Mapping[str, Any]) -> None:
        if self._writer is None:
            raise RuntimeError("the zygote is not being listened to")
        self._writer.write(encode(request))
