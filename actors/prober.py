"""One end of the pairs that measure the network: an actor bound to one accelerator.

Two of them become a process group of two ranks, over the backend that training uses on their device, and send to each
other what training sends: tensors. torch is imported in calls: the process says first which device it may see.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from statistics import median
from typing import Any

import ray

from actors import network

PINGS = 20
FIRST_BLOCK_BYTES, LAST_BLOCK_BYTES = 1 << 14, 1 << 26
LONG_ENOUGH_S = 0.1
"""A block that takes so long to arrive tells the rate well enough to choose how much to send."""


class Prober:
    """The actor: one end of pairs."""

    def __init__(self, index: int) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(index)  # before torch looks
        self._address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        if (interface := network.interface_of(self._address)) is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface

    def ready(self) -> None:
        """Returns once everything is imported and the device is bound."""
        from actors.training import device

        self._device = device.bind()

    def place(self) -> tuple[str, int]:
        """Where the other end of the next pair will find this one: its store listens there from now on, so that
        nothing else can take the port meanwhile."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._store = TCPStore(self._address, 0, is_master=True, wait_for_workers=False)
        return self._address, self._store.port

    def meet(self, rank: int, place: tuple[str, int], deadline_s: float) -> None:
        """Connects with the other end; the end of rank 0 is found at `place`."""
        import torch.distributed as dist

        from actors.training import device

        if dist.is_initialized():
            dist.destroy_process_group()
        timeout = timedelta(seconds=deadline_s)
        if rank == 0:
            store = self._store
            store.set_timeout(timeout)
        else:
            store = dist.TCPStore(*place, is_master=False, timeout=timeout)  # type: ignore[attr-defined]
        dist.init_process_group(
            device.backend(self._device), store=store, rank=rank, world_size=2, timeout=timeout
        )
        self._rank = rank
        self._pass(self._bytes(8), sender=0)
        self._pass(self._bytes(8), sender=1)
        self._synchronize()

    def ping(self) -> float:
        """Seconds of a small message, one way."""
        small, times = self._bytes(8), []
        for _ in range(PINGS):
            began = time.perf_counter()
            self._pass(small, sender=0)
            self._pass(small, sender=1)
            self._synchronize()
            times.append(time.perf_counter() - began)
        return median(times) / 2

    def tune(self, sender: int, seconds: float) -> None:
        """Finds out what `sender` can send in about `seconds`: blocks grow until one takes long enough."""
        import torch

        size, taken = FIRST_BLOCK_BYTES, 0.0
        while taken < LONG_ENOUGH_S and size < LAST_BLOCK_BYTES:
            size *= 2
            told = torch.tensor([self._timed(sender, size, 1)], dtype=torch.float64, device=self._device)
            self._pass(told, sender=sender)  # both go by the sender's clock
            taken = float(told[0])
        self._plan = (size, max(2, round(seconds / taken)))

    def stream(self, sender: int) -> float:
        """Bytes per second of what `tune` found."""
        size, count = self._plan
        return size * count / self._timed(sender, size, count)

    def _timed(self, sender: int, size: int, count: int) -> float:
        """Seconds until all blocks of `size` bytes have arrived."""
        block, began = self._bytes(size), time.perf_counter()
        for _ in range(count):
            self._pass(block, sender=sender)
        self._pass(self._bytes(8), sender=1 - sender)
        self._synchronize()
        return time.perf_counter() - began

    def _pass(self, tensor: Any, *, sender: int) -> None:
        """From `sender` to the other; on an accelerator it is under way when this returns."""
        import torch.distributed as dist

        if self._rank == sender:
            dist.send(tensor, 1 - self._rank)
        else:
            dist.recv(tensor, 1 - self._rank)

    def _synchronize(self) -> None:
        from actors.training import device

        device.synchronize(self._device)

    def _bytes(self, size: int) -> Any:
        import torch

        return torch.zeros(size, dtype=torch.uint8, device=self._device)
