"""How far the monotonic clock of this rank's host is from that of the group's first rank.

Processes of one host read one clock: the offset is 0. Between hosts it is measured by round trips, the shortest of
which bounds the error by half its length (Cristian 1989). Clocks drift, so it is measured anew each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

ROUND_TRIPS = 8
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Offset:
    offset_us: int
    """This host's clock minus the first rank's."""
    error_us: int | None
    """Bound of the error; None: not comparable, the offset only lays the beginnings of the step together."""


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


def boot_id() -> str:
    """Names the kernel, and so the clock, that this process runs on; empty where it cannot be told."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class HostClocks:
    """Offsets of the ranks of `group`. `measure` is collective over it."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        *,
        host: Callable[[], str] = boot_id,
        clock_us: Callable[[], int] = monotonic_us,
    ) -> None:
        self._group = group
        self._host = host
        self._clock_us = clock_us
        self._hosts: list[str] | None = None

    def measure(self, *, begun_us: int) -> Offset:
        """`begun_us`: when this rank began the step, by its own clock."""
        size = dist.get_world_size(self._group)
        if size == 1:
            return Offset(0, 0)
        if self._hosts is None:
            found: list[str] = [""] * size
            dist.all_gather_object(found, self._host(), group=self._group)
            self._hosts = found
        first = self._hosts[0]
        if first and all(host == first for host in self._hosts):
            return Offset(0, 0)
        if "gloo" not in dist.get_backend_config(self._group):
            return self._laid_together(begun_us, same=self._hosts[dist.get_rank(self._group)] == first != "")
        return self._by_round_trips(self._hosts)

    def _by_round_trips(self, hosts: list[str]) -> Offset:
        mine = dist.get_rank(self._group)
        result = Offset(0, 0)
        for peer in range(1, len(hosts)):
            if hosts[peer] == hosts[0] != "":
                continue
            if mine == 0:
                self._ask(peer)
            elif mine == peer:
                result = self._answer()
        return result

    def _ask(self, peer: int) -> None:
        """Sends the peer what each round trip showed; the peer keeps the shortest."""
        told = torch.zeros(1, dtype=torch.int64)
        for _ in range(ROUND_TRIPS):
            sent_us = self._clock_us()
            dist.send(told, group=self._group, group_dst=peer)
            dist.recv(told, group=self._group, group_src=peer)
            back_us = self._clock_us()
            dist.send(torch.tensor([sent_us, back_us]), group=self._group, group_dst=peer)

    def _answer(self) -> Offset:
        best: Offset | None = None
        told, seen = torch.zeros(1, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
        for _ in range(ROUND_TRIPS):
            dist.recv(told, group=self._group, group_src=0)
            here_us = self._clock_us()
            dist.send(told, group=self._group, group_dst=0)
            dist.recv(seen, group=self._group, group_src=0)
            sent_us, back_us = (int(value) for value in seen)
            error_us = (back_us - sent_us + 1) // 2
            if best is None or best.error_us is None or error_us < best.error_us:
                best = Offset(here_us - (sent_us + back_us) // 2, error_us)
        assert best is not None
        return best

    def _laid_together(self, begun_us: int, *, same: bool) -> Offset:
        """Without a transport for CPU tensors: the step's beginnings become one moment, and that is said."""
        beginnings: list[int] = [0] * dist.get_world_size(self._group)
        dist.all_gather_object(beginnings, begun_us, group=self._group)
        return Offset(0 if same else begun_us - beginnings[0], None)
