"""Host memory for transfers to and from an accelerator, a bounded part of it pinned.

Pinned memory makes a transfer fast and leaves it to the device's stream; it cannot be swapped out and is slow to get,
so it is kept and used again, and there is a limit. Beyond the limit ordinary memory is given: slower, never an error.
Buffers may be given back while a transfer is still queued: whoever gets one next queues behind it on the same stream.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor


class HostPool:
    def __init__(self, limit_bytes: int, *, device: torch.device) -> None:
        self._limit_bytes = limit_bytes
        self._pins = device.type != "cpu"
        self._idle: defaultdict[int, list[Tensor]] = defaultdict(list)
        self._lent: dict[int, Tensor] = {}
        """By address: the buffers of the pool that are out."""
        self.held_bytes = 0
        """Of the pool's own buffers, lent and idle."""

    def take(self, elements: int, dtype: torch.dtype) -> Tensor:
        """A flat host tensor, its content undefined. Of the pool when that has room, otherwise ordinary memory."""
        size = elements * dtype.itemsize
        if size == 0:
            return torch.empty(0, dtype=dtype)
        if not self._idle[size] and size <= self._limit_bytes < self.held_bytes + size:
            self._drop_idle()
        if self._idle[size]:
            buffer = self._idle[size].pop()
        elif self.held_bytes + size <= self._limit_bytes:
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=self._pins)
            self.held_bytes += size
        else:
            return torch.empty(elements, dtype=dtype)
        self._lent[buffer.data_ptr()] = buffer
        return buffer.view(dtype)

    def give_back(self, tensor: Tensor) -> None:
        """The counterpart of `take`; ordinary memory is let go."""
        buffer = self._lent.pop(tensor.data_ptr(), None)
        if buffer is not None:
            self._idle[buffer.numel()].append(buffer)

    def _drop_idle(self) -> None:
        """Makes room for other sizes than those that lie unused."""
        self.held_bytes -= sum(size * len(buffers) for size, buffers in self._idle.items())
        self._idle.clear()
