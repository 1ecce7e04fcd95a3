"""One actor a slot. For each turn they become the ranks of a job on some placement: real engine, real gloo groups."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import ray

from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Slot

FORK = multiprocessing.get_context("fork")
START_S = 240.0
AT_ONCE = 4
TURN_S = 240.0
"""Longest turn; a deadline for what hangs, not a measure."""


class Rank:
    """The actor."""

    def __init__(self) -> None:
        import os

        import torch

        from actors import network

        self._address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        os.environ["GLOO_SOCKET_IFNAME"] = network.interface_of(self._address) or ""
        torch.set_num_threads(1)

    def ready(self) -> str:
        import actors.training.engine  # noqa: F401  what a turn needs is imported before the first one

        return self._address

    def free_port(self) -> tuple[str, int]:
        with socket.create_server((self._address, 0)) as server:
            return self._address, server.getsockname()[1]

    def train(self, spec: dict[str, Any], rank: int, meeting: tuple[str, int], steps: int) -> dict[str, Any]:
        """The steps' seconds, and what this rank sent in the last one; the first step is not counted.

        A process of its own trains: gloo leaves threads behind when its groups are destroyed, which wake up a hundred
        times a second each and would slow down the turns after.
        """
        receiver, sender = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_train, args=(sender, spec, rank, meeting, steps))
        process.start()
        sender.close()
        try:
            if not receiver.poll(TURN_S):
                raise TimeoutError(f"rank {rank} gave no answer for {TURN_S:.0f} s")
            return dict(
                receiver.recv()
            )  # EOFError when the process died; its traceback is in the actor's log
        finally:
            process.kill()
            process.join()


def _train(answer: Connection, spec: dict[str, Any], rank: int, meeting: tuple[str, int], steps: int) -> None:
    import torch
    import torch.distributed as dist

    from actors.training.engine import Engine
    from actors.training.parallel.mesh import set_default_timeout

    job = JobSpec.model_validate(spec)
    world, timeout = job.parallelism.world_size, timedelta(seconds=TURN_S)
    set_default_timeout(timeout)
    store = dist.TCPStore(*meeting, is_master=rank == 0, timeout=timeout, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timeout)
    engine = Engine(job, torch.device("cpu"), rank=rank)
    taken = []
    for step in range(1 + steps):
        dist.barrier()
        began = time.perf_counter()
        engine.train_step(step, stop=False)
        taken.append(time.perf_counter() - began)
    cost = engine.meter.record(taken[-1])
    dist.barrier()
    answer.send({"step_s": taken[1:], "sent_bytes": cost["sent_bytes"]})


@dataclass
class Crew:
    """The actors of a cluster."""

    actors: dict[Slot, Any]

    @classmethod
    def start(cls, slots: Sequence[Slot]) -> Crew:
        """Some at a time: each imports torch, which is seconds of a core."""
        made: dict[Slot, Any] = {}
        for first in range(0, len(slots), AT_ONCE):
            some: dict[Slot, Any] = {
                slot: ray.remote(Rank)
                .options(num_cpus=0, resources={f"gpu{slot.index}": 1}, label_selector={"host": slot.node})
                .remote()
                for slot in slots[first : first + AT_ONCE]
            }
            ray.get([actor.ready.remote() for actor in some.values()], timeout=START_S)
            made |= some
        return cls(made)

    def turn(self, spec: JobSpec, slots: Sequence[Slot], steps: int) -> dict[str, Any]:
        """Seconds of each step (of the rank that took longest) and bytes of rank 0 by axis."""
        meeting = ray.get(self.actors[slots[0]].free_port.remote(), timeout=TURN_S)
        document = spec.model_dump(mode="json", by_alias=True)
        ranks = [
            self.actors[slot].train.remote(document, rank, meeting, steps) for rank, slot in enumerate(slots)
        ]
        told = ray.get(ranks, timeout=TURN_S)
        times = zip(*(one["step_s"] for one in told), strict=True)
        return {"step_s": [max(one) for one in times], "sent_bytes": told[0]["sent_bytes"]}
