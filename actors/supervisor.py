"""Supervisor: one detached actor an incarnation of a job. It runs the gang's course and answers the control plane.

It outlives the control plane: nobody has to ask for training to go on. When nobody has asked for the long lease, it
ends its ranks and itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

from actors.course import Course
from actors.dead_man import DeadMan
from orchestrator.lifecycle.ports import FencedError, LogChunk
from orchestrator.lifecycle.reports import GangOrder, GangPhase, GangReport, Move, NoMove
from orchestrator.recovery.timeouts import LAST_WORK_S, BaseTimes, Timeouts
from orchestrator.spec.job import JobSpec


class Supervisor:
    """The actor. Made with its whole order, so that it needs nobody to begin."""

    def __init__(self, order: GangOrder, base: BaseTimes) -> None:
        times = Timeouts.of(JobSpec.model_validate(dict(order.spec)).recovery, base)
        self._order = order
        self._token = order.fencing_token
        self._course = Course(order, times)
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease = DeadMan(times.supervisor_lease_s, self._give_up)

    async def begin(self) -> None:
        """Begins the course; asking again changes nothing."""
        if self._running is None:
            self._loop = asyncio.get_running_loop()
            self._running = self._loop.create_task(self._course.run())

    async def poll(self, event_cursor: int, step_cursor: int, fencing_token: int) -> GangReport:
        """Everything newer than the cursors and the state now; renews the lease."""
        await self._accept(fencing_token)
        course, mender = self._course, self._course.mender
        events = course.journal.events_after(event_cursor)
        steps = course.journal.steps_after(step_cursor)
        over = course.phase is GangPhase.ENDED and course.journal.drained(events, steps, event_cursor)
        # The end is told last: a control plane that has heard of it asks no more.
        phase = course.phase if over or course.phase is not GangPhase.ENDED else GangPhase.STOPPING
        return GangReport(
            job_id=self._order.job_id,
            incarnation=self._order.incarnation,
            phase=phase,
            attempt=course.attempt,
            restarts_used=mender.history.restarts_used,
            step=course.step,
            events=events,
            steps=steps,
            logs=course.logs if over else (),
            ranks=course.ranks,
            outcome=course.outcome if over else None,
            reason=course.reason.value,
            deaths_at_step=(mender.history.step, mender.history.deaths),
            health=course.health.reports(at_once=course.phase is GangPhase.ENDED),
            message=course.message,
            revision=mender.revision,
            lost_nodes=mender.lost_nodes,
            unwanted=course.unwanted,
            spent=mender.history.carried(mender.saved),
            told_at=time.time(),
        )

    async def cancel(self, fencing_token: int) -> None:
        await self._accept(fencing_token)
        self._course.cancel()

    async def vacate(self, grace_s: float, fencing_token: int) -> None:
        await self._accept(fencing_token)
        self._course.vacate(grace_s)

    async def move(self, answer: Move | NoMove, fencing_token: int) -> None:
        await self._accept(fencing_token)
        self._course.mender.take_move(answer)

    async def read_log(self, rank: int, attempt: int | None, offset: int, limit: int) -> LogChunk:
        """Reading a log is no sign of a control plane that leads, and renews nothing."""
        chunk: LogChunk = await self._course.read_log(rank=rank, attempt=attempt, offset=offset, limit=limit)
        return chunk

    async def _accept(self, fencing_token: int) -> None:
        if fencing_token < self._token:
            raise FencedError(
                f"fencing token {fencing_token} is older than {self._token}: a newer leader has spoken"
            )
        self._token = fencing_token
        self._lease.renew()
        await self.begin()

    def _give_up(self) -> None:
        """The lease ran out. Runs in the lease's own thread."""
        if self._loop is not None:
            work = asyncio.run_coroutine_threadsafe(self._course.stop(), self._loop)
            with contextlib.suppress(Exception):
                work.result(LAST_WORK_S)
        os._exit(0)
