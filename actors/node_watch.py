"""Waiting for nodes to leave the cluster. Ray has nothing to wait on for that, so its head is asked again and again:
once a second for everybody who waits, however many nodes a gang starts on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from ray.exceptions import RayError

NODES_POLL_S = 1.0


class NodeWatch:
    """`living` names the nodes that are part of the cluster. While it fails nothing is known to be lost."""

    def __init__(
        self, living: Callable[[], Awaitable[Collection[str]]], *, every_s: float = NODES_POLL_S
    ) -> None:
        self._living = living
        self._every_s = every_s
        self._waiting: set[tuple[str, asyncio.Future[None]]] = set()
        self._asking: asyncio.Task[None] | None = None

    async def gone(self, node: str) -> None:
        """Returns once the node is no part of the cluster."""
        entry = (node, asyncio.get_running_loop().create_future())
        self._waiting.add(entry)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        try:
            await entry[1]
        finally:
            self._waiting.discard(entry)

    async def _ask(self) -> None:
        """Asks as long as anybody waits."""
        while self._waiting:
            try:
                living = await self._living()
            except (OSError, RayError):
                pass
            else:
                for node, gone in self._waiting:
                    if node not in living and not gone.done():
                        gone.set_result(None)
            await asyncio.sleep(self._every_s)
