"""Searches for plans: seconds of pure computing, in processes of their own, so that others are served meanwhile.

A thread would not do: it shares the interpreter's lock with every other request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from api.problems import ProblemError

AT_ONCE = 2
"""Searches that run at the same time; further ones wait for their turn within their deadline."""
DEADLINE_S = 60.0
"""Of waiting and searching together. On a core of its own a search over 1,024 accelerators takes a few seconds."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Searches:
    """Worker processes for searches. They start with the first one and end with the event loop."""

    def __init__(self, *, at_once: int = AT_ONCE, deadline_s: float = DEADLINE_S) -> None:
        self._limiter = CapacityLimiter(at_once)
        self._deadline_s = deadline_s

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """`work(*arguments)` elsewhere; function, arguments and result must be picklable.

        ProblemError 503 when the deadline has passed (the process is killed) or the process ended on its own.
        """
        try:
            with fail_after(self._deadline_s):
                return await to_process.run_sync(work, *arguments, cancellable=True, limiter=self._limiter)
        except TimeoutError:
            raise ProblemError(
                503,
                "search-took-too-long",
                f"The search was not done within {self._deadline_s:g} s, or {self._limiter.total_tokens:g} others ran "
                "before it. Try again, ask for fewer accelerators, or search with `atoll plan --auto --fabric FILE`.",
            ) from None
        except BrokenWorkerProcess:
            raise ProblemError(
                503, "search-ended", "The process that searched has ended. Try again."
            ) from None
