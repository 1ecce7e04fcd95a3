"""Doing without a slow node: when the controller is asked for another place, and what becomes of its answer.

The gang trains on meanwhile. The controller stores the new placement before it tells it, so from then on it holds: the
agents of the nodes that are new start beside the ranks, then all ranks are asked to save a checkpoint and end, and the
next attempt begins on the new placement. An attempt that fails before that ends in the same way, without the saving.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ray.exceptions import RayError

from actors.gang import Gang, StartFailedError
from actors.reservations import NodeTooSmallError
from orchestrator.health.policy import MOST_REPLACEMENTS, Replacement
from orchestrator.lifecycle.reports import EventKind, Move, NoMove, Unwanted
from orchestrator.recovery.timeouts import REPLACE_AGAIN_S


class Handover:
    """`write` writes an event; `wake` is called when agents are there, or are known not to come."""

    def __init__(self, gang: Gang, write: Callable[..., None], wake: Callable[[], None]) -> None:
        self._gang = gang
        self._write = write
        self._wake = wake
        self._said = ""
        """Why the node stays, as it was told last."""
        self._ask_again_at_s = float("-inf")
        self._preparing: asyncio.Task[None] | None = None
        self._node = ""
        self.move: Move | None = None
        """What the controller has stored, and is to be carried out before the next attempt begins."""

    def unwanted(self, chosen: Replacement | None, *, replaced: int, saves: bool) -> Unwanted | None:
        """What to ask the controller for now. `replaced`: nodes that the job has done without; `saves`: its newest
        checkpoint could be written, so that the ranks can end without a loss."""
        if chosen is None or self.move is not None or not saves or time.monotonic() < self._ask_again_at_s:
            return None
        self._node = chosen.node
        if replaced >= MOST_REPLACEMENTS:
            self._put_off(f"{replaced} nodes of this job have been replaced, which is the most")
            return None
        return Unwanted(chosen.node, chosen.reason)

    def answered(self, answer: Move | NoMove) -> None:
        """The controller's answer to `unwanted`."""
        if isinstance(answer, NoMove):
            self._put_off(answer.message)
        elif self.move is None:
            self.move = answer

    @property
    def is_prepared(self) -> bool:
        """Agents are up on the nodes of `move`, or are known not to come, which the one who moves finds out."""
        return self._preparing is not None and self._preparing.done()

    def prepare(self) -> None:
        """Begins to start the agents; asking again changes nothing."""
        if self._preparing is None and self.move is not None:
            self._preparing = asyncio.create_task(self._start_agents(self.move))
            self._preparing.add_done_callback(lambda _: self._wake())

    async def take(self) -> Move | None:
        """What is to be carried out now; it is asked for once."""
        move, preparing = self.move, self._preparing
        self.move, self._preparing = None, None
        if preparing is not None:
            await preparing
        return move

    async def _start_agents(self, move: Move) -> None:
        try:
            await self._gang.prepare(move.slots)
        except (StartFailedError, NodeTooSmallError, RayError, ValueError, TimeoutError):
            return  # it has no agent that is watched: the move itself tells why

    def _put_off(self, why: str) -> None:
        self._ask_again_at_s = time.monotonic() + REPLACE_AGAIN_S
        if why != self._said:
            self._said = why
            data: dict[str, Any] = {"node": self._node, "reason": why}
            self._write(EventKind.REPLACEMENT_PUT_OFF, f"Slow node {self._node} stays for now: {why}.", data)
