"""Watches that an attempt gets on: asks what the ranks do when no step was told for a while, and finds who hangs."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from actors.gang import Gang
from orchestrator.health.hang import Hang, explain, unanswered
from orchestrator.health.pace import Pace
from orchestrator.health.standing import Standing
from orchestrator.recovery.timeouts import Timeouts


class HangWatch:
    """Of one attempt. Nothing is asked of anybody while steps are told more often than `hang_after_s`."""

    def __init__(self, gang: Gang, attempt: int, pace: Pace, times: Timeouts) -> None:
        self._gang = gang
        self._attempt = attempt
        self._pace = pace
        self._times = times
        self._suspected: dict[int, int] | None = None
        """Moves of each rank when all of them were still for too long."""
        self._told_at = self.look_at = 0.0
        """When a rank said something last, and when to look next, on the monotonic clock."""
        self.told()

    def told(self) -> None:
        """A rank said something: it gets on."""
        self._told_at = time.monotonic()
        self.look_at = self._told_at + self._times.hang_after_s

    async def look(self, ranks: Collection[int]) -> Hang | None:
        """Whether `ranks`, those that have not ended, hang. None when they do not, or when it is not sure yet."""
        standings = await self._gang.standings(self._attempt)
        silent_s = time.monotonic() - self._told_at
        unknown = sorted(set(ranks) - standings.keys())
        if unknown and silent_s >= self._times.silence_s:
            return unanswered(unknown, silent_s=silent_s)
        if unknown or not ranks:
            # An agent that gives no answer has a watch of its own, which ends the attempt if it is lost.
            self._again(self._times.call_s)
            return None
        limit_s = self._pace.limit_s({standing.phase for standing in standings.values()})
        still_s = min(standing.still_s if standing.moves else silent_s for standing in standings.values())
        if still_s < limit_s:
            # Not later than that: the ranks may come to a less patient phase without a word.
            self._again(min(max(limit_s - still_s, self._pace.confirm_s), self._times.hang_after_s))
            return None
        moves = _moves(standings)
        if moves != self._suspected:
            self._again(self._pace.confirm_s)
            self._suspected = moves
            return None
        stacks = await self._gang.stacks(self._attempt)
        latest = await self._gang.standings(self._attempt)
        if _moves(latest) != moves:
            self._again(self._pace.confirm_s)
            return None
        self._pace.condemned(max(standing.step for standing in latest.values()))
        return explain(
            [replace(standing, stack=stacks.get(rank, "")) for rank, standing in sorted(latest.items())],
            limit_s=limit_s,
        )

    def _again(self, after_s: float) -> None:
        self._suspected = None
        self.look_at = time.monotonic() + after_s


def _moves(standings: dict[int, Standing]) -> dict[int, int]:
    return {rank: standing.moves for rank, standing in standings.items()}
