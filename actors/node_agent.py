"""NodeAgent: one detached actor a node of a gang. It owns the node's zygote and ranks and says what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray

from actors import network, processes, pulse, rank_logs, stacks
from actors.dead_man import DeadMan
from actors.messages import AgentFacts, Lines, Note, NoteKind, Notes, RankOrder, encode
from actors.step_reader import StepReader
from actors.zygote_link import ZygoteLink
from orchestrator.health.standing import Standing
from orchestrator.lifecycle.ports import LogChunk
from orchestrator.lifecycle.reports import LogTail
from orchestrator.recovery.timeouts import RANK_DRAIN_S, Timeouts

STEPS_EVERY_S = 1.0
"""Finished steps are told together, at most this often: a short step costs no call of its own."""
_OF_STEPS = (NoteKind.STEP, NoteKind.PHASES)


class NodeAgent:
    """The actor. Every call of the supervisor renews the lease; without renewal the agent ends its ranks and itself."""

    def __init__(self, node: str, program: str, threads: int, times: Timeouts) -> None:
        self._zygote = ZygoteLink(program, threads)  # first: its imports take longest
        self._node = node
        self._times = times
        self._address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        self._ray_node = ray.get_runtime_context().get_node_id()
        self._labels = dict(ray.get_runtime_context().get_node_labels())
        self._directory = Path(tempfile.mkdtemp(prefix="atoll-agent-"))  # mode 0700
        self._notes: list[Note] = []
        self._seq = 0
        self._news = asyncio.Event()
        """Something beside finished steps is to be told."""
        self._steps = asyncio.Event()
        self._told_at_s = 0.0
        self._attempt = 0
        self._connections: dict[tuple[int, int], asyncio.StreamWriter] = {}
        self._drained: dict[tuple[int, int], asyncio.Event] = {}
        self._running: dict[tuple[int, int], int] = {}
        """(attempt, rank) -> pid of every rank process not known to be gone."""
        self._gone: asyncio.Event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._pulses = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pulses")
        """Reads pulses and stacks, which lie on this node: the threads that read logs may be stuck in the very storage
        that the ranks hang in."""
        self._lease = DeadMan(times.agent_lease_s, self._give_up)

    async def open(self) -> AgentFacts:
        """Begins to listen to zygote and ranks."""
        self._lease.renew()
        if self._server is None:
            self._server = await asyncio.start_unix_server(
                self._hear_rank, self._directory / "agent.sock", limit=Lines.LIMIT_BYTES
            )
            self._spawn(self._zygote.listen(self._hear_zygote, self._lose_zygote))
            self._spawn(self._tell_phases())
        return AgentFacts(self._node, self._address, os.getpid(), self._zygote.pid)

    async def open_rendezvous(self) -> tuple[str, int]:
        """Where rank 0 of the next attempt will serve the store; asked of the agent that will fork rank 0."""
        self._lease.renew()
        return self._address, await self._zygote.open_rendezvous(self._address)

    async def start(self, order: RankOrder) -> None:
        """Forks the ranks of an attempt. An attempt that is not newer than the last one is refused."""
        self._lease.renew()
        if order.attempt <= self._attempt:
            raise ValueError(
                f"attempt {order.attempt} is not newer than {self._attempt}, which ran here last"
            )
        self._attempt = order.attempt
        for rank, _ in order.ranks:
            self._running[order.attempt, rank] = 0
            self._drained[order.attempt, rank] = asyncio.Event()
        self._gone.clear()
        self._zygote.fork(self._shared(order), [self._own(order, rank, index) for rank, index in order.ranks])

    async def go(self, attempt: int) -> None:
        """Lets the ranks of `attempt` begin: the certificate is made."""
        self._tell(attempt, {"is": "go"})

    async def ask_to_stop(self, attempt: int) -> None:
        """Asks the rank programs to end at their next step."""
        self._tell(attempt, {"is": "stop"})

    async def kill(self, attempt: int) -> int:
        """SIGKILL to the ranks of `attempt` and earlier; returns the cursor of the newest note once all are gone."""
        self._lease.renew()
        if self._running:
            self._zygote.kill(attempt)
            await self._gone.wait()
        return self._seq

    async def watch(self, cursor: int) -> Notes:
        """Notes newer than `cursor`, as soon as there are any; nothing after `watch_s`. Renews the lease."""
        self._lease.renew()
        self._notes = [note for note in self._notes if note.seq > cursor]
        for event, told in ((self._news, False), (self._steps, True)):
            if not any((note.kind in _OF_STEPS) is told for note in self._notes):
                event.clear()
        if not self._news.is_set():
            await self._wait_for_notes()
        self._told_at_s = time.monotonic()
        return Notes(time.time(), tuple(note for note in self._notes if note.seq > cursor))

    async def _wait_for_notes(self) -> None:
        """Until there is news, or steps and the last notes were told long enough ago, or `watch_s` is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._times.watch_s):
                either = [asyncio.ensure_future(event.wait()) for event in (self._news, self._steps)]
                try:
                    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for waiting in either:
                        waiting.cancel()
                early_s = self._told_at_s + STEPS_EVERY_S - time.monotonic()
                if not self._news.is_set() and early_s > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._news.wait(), early_s)

    async def _tell_phases(self) -> None:
        """Notes what the ranks measured, one note for all of them, as often as steps are told."""
        reading, reader = 0, StepReader()
        while True:
            await asyncio.sleep(STEPS_EVERY_S)
            attempt = self._attempt
            if attempt != reading:
                reading, reader = attempt, StepReader()
            pulses = {rank: self._pulse(attempt, rank) for rank in self._living(attempt)}
            rows = await asyncio.get_running_loop().run_in_executor(self._pulses, reader.look, pulses)
            if len(rows) and attempt == self._attempt:
                self._note(attempt, -1, NoteKind.PHASES, {"rows": rows})

    async def standings(self, attempt: int) -> tuple[Standing, ...]:
        """What each rank of `attempt` that lives here was last known to do; asks no rank."""
        self._lease.renew()
        living = self._living(attempt)  # here: ranks come and go in this thread
        return await asyncio.get_running_loop().run_in_executor(
            self._pulses,
            lambda: tuple(
                pulse.read(self._pulse(attempt, rank), rank=rank, node=self._node, state=processes.state(pid))
                for rank, pid in living.items()
            ),
        )

    async def stacks(self, job_directory: str, attempt: int) -> dict[int, str]:
        """Python stacks of the ranks of `attempt` that live here, by rank; they are written to the ranks' logs too.
        A rank that gives none in time is left out."""
        self._lease.renew()
        ranks = {rank: (pid, self._pulse(attempt, rank)) for rank, pid in self._living(attempt).items()}
        found = await asyncio.get_running_loop().run_in_executor(self._pulses, stacks.collect, ranks)

        def note_down() -> None:
            for rank, text in found.items():
                rank_logs.append(
                    rank_logs.log_path(job_directory, attempt, rank),
                    f"No rank got on for too long. Stacks:\n{text}",
                )

        with contextlib.suppress(TimeoutError):  # the storage of the logs may be what hangs
            await asyncio.wait_for(asyncio.to_thread(note_down), stacks.ANSWER_S)
        return found

    def _living(self, attempt: int) -> dict[int, int]:
        return {rank: pid for (of, rank), pid in self._running.items() if of == attempt and pid}

    def _pulse(self, attempt: int, rank: int) -> Path:
        return self._directory / f"{attempt}-{rank}.pulse"

    async def read_log(
        self, job_directory: str, attempt: int, rank: int, offset: int, limit: int
    ) -> LogChunk:
        path = rank_logs.log_path(job_directory, attempt, rank)
        return await asyncio.to_thread(
            rank_logs.read, path, attempt=attempt, rank=rank, offset=offset, limit=limit
        )

    async def tails(
        self, job_directory: str, attempt: int, ranks: tuple[int, ...], limit: int
    ) -> tuple[LogTail, ...]:
        """Ends of the logs of `ranks`: this node's, or those of a node that is gone."""

        def read_all() -> tuple[LogTail, ...]:
            return tuple(
                rank_logs.tail(
                    rank_logs.log_path(job_directory, attempt, rank), attempt=attempt, rank=rank, limit=limit
                )
                for rank in ranks
            )

        self._lease.renew()
        return await asyncio.to_thread(read_all)

    async def shutdown(self) -> None:
        """Ends zygote and ranks and returns when they are gone; the actor is of no use afterwards."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._lease.release()
        self._zygote.end()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _give_up(self) -> None:
        """The lease ran out. Runs in the lease's own thread."""
        self._end()
        os._exit(0)

    def _shared(self, order: RankOrder) -> dict[str, Any]:
        """What all ranks of an order have in common, for the zygote."""
        interface = network.interface_of(self._address)
        environment = {
            "MASTER_ADDR": order.rendezvous[0],
            "MASTER_PORT": str(order.rendezvous[1]),
            "WORLD_SIZE": str(len(order.slots)),
            "LOCAL_WORLD_SIZE": str(len(order.ranks)),
            "OMP_NUM_THREADS": str(order.threads),
        }
        if interface is not None:
            environment |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
        return {
            "agent": str(self._directory / "agent.sock"),
            "attempt": order.attempt,
            "incarnation": order.incarnation,
            "node": self._node,
            "ray_node": self._ray_node,
            "labels": self._labels,
            "world_size": len(order.slots),
            "program": order.program,
            "spec": order.spec,
            "job_directory": order.job_directory,
            "rendezvous": list(order.rendezvous),
            "timeout_s": order.timeout_s,
            "threads": order.threads,
            "extras": order.extras,
            "environment": environment,
        }

    def _own(self, order: RankOrder, rank: int, index: int) -> dict[str, Any]:
        """What is a rank's own; the zygote merges it over the shared part."""
        local = [r for r, _ in order.ranks].index(rank)
        log = rank_logs.log_path(order.job_directory, order.attempt, rank)
        own = {"RANK": str(rank), "LOCAL_RANK": str(local), "CUDA_VISIBLE_DEVICES": str(index)}
        return {
            "rank": rank,
            "index": index,
            "log": str(log),
            "pulse": str(self._pulse(order.attempt, rank)),
            "environment": {**self._shared(order)["environment"], **own},
        }

    async def _hear_rank(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a rank, until its end."""
        key: tuple[int, int] | None = None
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if key is None:
                    key = (message["attempt"], message["rank"])
                    if key not in self._running:
                        return  # of an attempt that is over
                    self._connections[key] = writer
                self._note(*key, NoteKind(message["kind"]), message["data"], at=message["at"])
        except (ConnectionError, ValueError):
            return
        finally:
            writer.close()
            if key is not None:
                self._connections.pop(key, None)
                if key in self._drained:
                    self._drained[key].set()

    def _hear_zygote(self, message: Mapping[str, Any]) -> None:
        key = (message["attempt"], message["rank"])
        if message["is"] == "forked" and key in self._running:
            self._running[key] = message["pid"]
        elif message["is"] == "exited":
            self._spawn(self._see_off(key, message["code"], time.time()))

    async def _see_off(self, key: tuple[int, int], code: int, at: float) -> None:
        """Notes a rank's end, after everything that it had sent before.

        One that ended by itself has said why, though its first words may not have been read yet; one that was killed
        before it said anything has not.
        """
        drained = self._drained.get(key)
        if drained is not None and (key in self._connections or code >= 0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(drained.wait(), RANK_DRAIN_S)
        self._forget(key)
        self._note(*key, NoteKind.EXITED, {"code": code}, at=at)

    def _lose_zygote(self) -> None:
        """The zygote is gone, so the kernel ended its ranks."""
        for key in list(self._running):
            self._forget(key)
        self._note(self._attempt, -1, NoteKind.ZYGOTE_LOST, {})

    def _forget(self, key: tuple[int, int]) -> None:
        self._running.pop(key, None)
        self._drained.pop(key, None)
        if not self._running:
            self._gone.set()

    def _note(
        self, attempt: int, rank: int, kind: NoteKind, data: Mapping[str, Any], at: float | None = None
    ) -> None:
        self._seq += 1
        self._notes.append(Note(self._seq, at or time.time(), attempt, rank, kind, data))
        (self._steps if kind in _OF_STEPS else self._news).set()

    def _tell(self, attempt: int, message: Mapping[str, Any]) -> None:
        self._lease.renew()
        for (of, _), writer in self._connections.items():
            if of == attempt:
                writer.write(encode(message))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def order_for(node: str, order: RankOrder) -> RankOrder:
    """The part of a whole gang's order that belongs to `node`."""
    ranks = tuple((rank, slot.index) for rank, slot in enumerate(order.slots) if slot.node == node)
    return replace(order, ranks=ranks)
