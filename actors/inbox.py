"""What a course waits for: news of its gang, answers of the controller, and the wish that it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.messages import Note
from orchestrator.lifecycle.reports import Move, NoMove, Outcome
from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import NodeLoss

News = Note | NodeLoss | Move | NoMove


@dataclass(frozen=True, slots=True)
class EndRequest:
    """What the gang was asked to end for."""

    outcome: Outcome
    reason: Reason
    message: str
    grace_s: float
    """Time of the ranks to finish the step they are in, save a checkpoint and end by themselves."""


class EndedOnRequestError(Exception):
    """Ends an attempt on request; caught where attempts are run."""

    def __init__(self, request: EndRequest) -> None:
        super().__init__(request.message)
        self.request = request


class Inbox:
    def __init__(self) -> None:
        self._news: asyncio.Queue[News | None] = asyncio.Queue()
        self.asked: EndRequest | None = None

    def put(self, news: News) -> None:
        self._news.put_nowait(news)

    def wake(self) -> None:
        """Whoever waits here is to look again at what it knows."""
        self._news.put_nowait(None)

    def ask(self, request: EndRequest) -> None:
        """Whoever waits here is to end."""
        self.asked = request
        self.wake()

    async def next(self, wake: float) -> News | None:
        """The next news, or None at time `wake` of the monotonic clock. EndedOnRequestError when the job is to end."""
        news = await self.next_even_if_asked(wake)
        if self.asked is not None:
            raise EndedOnRequestError(self.asked)
        return news

    async def next_even_if_asked(self, wake: float) -> News | None:
        try:
            return await asyncio.wait_for(self._news.get(), max(0.0, wake - time.monotonic()))
        except TimeoutError:
            return None

    async def unless_asked(self, work: Any) -> Any:
        """What `work` gives; EndedOnRequestError, and it is given up, when the job is to end."""
        task = asyncio.ensure_future(work)
        while not task.done():
            if self.asked is not None:
                task.cancel()
                raise EndedOnRequestError(self.asked)
            await asyncio.wait({task}, timeout=0.2)
        return task.result()

    def drain(self) -> Iterator[News]:
        """What has come and was not waited for."""
        while not self._news.empty():
            if (news := self._news.get_nowait()) is not None:
                yield news
