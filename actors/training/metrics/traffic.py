"""Bytes that this rank sends and time that it waits, by axis of parallelism, counted where collectives are issued.

Every collective of torch.distributed, whoever asks for it (this engine, FSDP2, torch's pipeline stages), ends in a
method of a `ProcessGroup`. While a step runs these methods are replaced by ones that count and then do the same; the
group tells the axis, because every axis that carries traffic has a group of its own (`mesh.py`). What passes other
groups, such as the one that checkpoints talk over, is not counted.

Bytes follow the ring algorithm (Thakur et al. 2005), n the bytes of the whole tensor and P the ranks of the group:

| collective | bytes that a rank sends |
| --- | --- |
| all-reduce | 2n(P-1)/P |
| all-gather, reduce-scatter, broadcast, reduce | n(P-1)/P |
| all-to-all | what leaves the rank |
| send | n |
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor

from actors.pulse import Pulse

MESSAGES = ("send", "receive")
"""Kinds that have one sender and one receiver."""
Count = Callable[[tuple[Any, ...], int, int], float]
"""(arguments, ranks of the group, own index in it) -> bytes sent."""


class Traffic:
    """Counts since it was made or cleared. Where the rank is meanwhile goes into its pulse."""

    def __init__(self, axis_of: Callable[[dist.ProcessGroup], str | None], pulse: Pulse) -> None:
        """`axis_of` names the axis whose traffic a group carries; None: not counted. It is asked once a group."""
        self._axis_of = axis_of
        self._pulse = pulse
        self._channels: dict[tuple[dist.ProcessGroup, tuple[int, int] | None], int] = {}
        """By group and direction (sender and receiver in it); None for collectives."""
        self._groups: dict[dist.ProcessGroup, tuple[str | None, int, int]] = {}
        """Axis, ranks and own index of every group that was met."""
        self.sent_bytes: defaultdict[tuple[str, str], float] = defaultdict(float)
        """By axis and kind of collective."""
        self.waited_s: defaultdict[str, float] = defaultdict(float)
        """Time that the host spent issuing collectives and waiting for them, by axis: communication that nothing
        hid. On an accelerator waiting does not stop the host, so there it says nothing."""
        self.waited_total_s = 0.0
        self.moved_s = dict.fromkeys(MESSAGES, 0.0)
        """The part of it that went by with messages along a pipeline: `send`, `receive`."""
        self._works: dict[int, tuple[str, str, int, int]] = {}
        """By id of what is under way: axis, kind, channel of the pulse, number there."""

    def by_axis(self) -> dict[str, float]:
        """Bytes sent by axis, all kinds together."""
        totals: dict[str, float] = {}
        for (axis, _), sent in self.sent_bytes.items():
            totals[axis] = totals.get(axis, 0.0) + sent
        return totals

    def clear(self) -> None:
        self.sent_bytes.clear()
        self.waited_s.clear()
        self.waited_total_s = 0.0
        self.moved_s = dict.fromkeys(MESSAGES, 0.0)
        self._works.clear()

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts what any thread of this process issues while it is open."""
        originals = {name: dist.ProcessGroup.__dict__[name] for name in _COUNTS}
        wait = dist.Work.__dict__["wait"]
        for name, original in originals.items():
            setattr(dist.ProcessGroup, name, self._counted(name, original))
        dist.Work.wait = self._timed(wait)  # type: ignore[method-assign]
        try:
            yield
        finally:
            for name, original in originals.items():
                setattr(dist.ProcessGroup, name, original)
            dist.Work.wait = wait  # type: ignore[method-assign]
            self._works.clear()

    def _counted(self, name: str, original: Any) -> Callable[..., Any]:
        kind, count = _COUNTS[name]
        # A method of a C++ class binds by itself only as a class attribute.
        issue = original.__get__(None, dist.ProcessGroup)
        groups, clock, pulse, called = self._groups, time.perf_counter, self._pulse, kind.encode()

        def counted(group: dist.ProcessGroup, *arguments: Any, **named: Any) -> Any:
            known = groups.get(group)
            axis, size, index = self._meet(group) if known is None else known
            if axis is None:
                return issue(group, *arguments, **named)
            channel = self._channel(group, axis, _direction(kind, arguments, index))
            number = pulse.enter(channel, called)
            began = clock()
            work = issue(group, *arguments, **named)
            took = clock() - began
            pulse.leave()
            self._add(axis, kind, took)
            self.sent_bytes[axis, kind] += count(arguments, size, index)
            if work is not None:
                self._works[id(work)] = axis, kind, channel, number
            return work

        return counted

    def _channel(self, group: dist.ProcessGroup, axis: str, direction: tuple[int, int] | None) -> int:
        known = self._channels.get((group, direction))
        if known is not None:
            return known
        ranks = dist.get_process_group_ranks(group)
        name = str(group.group_name)
        if direction is not None:
            ranks = [ranks[end] for end in direction]
            name = f"{name} {ranks[0]}>{ranks[1]}"
        return self._channels.setdefault((group, direction), self._pulse.channel(name, axis, ranks))

    def _meet(self, group: dist.ProcessGroup) -> tuple[str | None, int, int]:
        return self._groups.setdefault(group, (self._axis_of(group), group.size(), group.rank()))

    def _timed(self, original: Any) -> Callable[..., Any]:
        wait_for = original.__get__(None, dist.Work)

        def wait(work: dist.Work, *arguments: Any, **named: Any) -> Any:
            known = self._works.pop(id(work), None)
            if known is None:
                return wait_for(work, *arguments, **named)
            axis, kind, channel, number = known
            self._pulse.wait(channel, number)
            began = time.perf_counter()
            done = wait_for(work, *arguments, **named)
            took = time.perf_counter() - began
            self._pulse.leave()
            self._add(axis, kind, took)
            return done

        return wait

    def _add(self, axis: str, kind: str, waited_s: float) -> None:
        self.waited_s[axis] += waited_s
        self.waited_total_s += waited_s
        if kind in self.moved_s:
            self.moved_s[kind] += waited_s


def _direction(kind: str, arguments: tuple[Any, ...], index: int) -> tuple[int, int] | None:
    """Sender and receiver of a message, as indexes in its group; None for a collective."""
    if kind == "send":
        return index, arguments[1]
    return (arguments[1], index) if kind == "receive" else None


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _total(tensors: Any) -> int:
    """Bytes of a tensor, or of tensors in lists of any depth."""
    return _size(tensors) if isinstance(tensors, Tensor) else sum(map(_total, tensors))


def _all_reduce(arguments: tuple[Any, ...], size: int, _: int) -> float:
    return 2 * _total(arguments[0]) * (size - 1) / size


def _first(arguments: tuple[Any, ...], size: int, _: int) -> float:
    """The whole is the first argument: outputs of an all-gather, what is broadcast or reduced."""
    return _total(arguments[0]) * (size - 1) / size


def _second(arguments: tuple[Any, ...], size: int, _: int) -> float:
    """The whole is the second argument: inputs of a reduce-scatter."""
    return _total(arguments[1]) * (size - 1) / size


def _all_to_all_single(arguments: tuple[Any, ...], size: int, index: int) -> float:
    """(output, input, output rows by rank, input rows by rank); no rows given: equal parts."""
    whole, rows = arguments[1], arguments[3] if len(arguments) > 3 else []
    if not rows:
        return _size(whole) * (size - 1) / size
    return (sum(rows) - rows[index]) * (_size(whole) / whole.shape[0]) if whole.shape[0] else 0.0


def _all_to_all(arguments: tuple[Any, ...], _: int, index: int) -> float:
    return sum(_size(part) for rank, part in enumerate(arguments[1]) if rank != index)


def _all(arguments: tuple[Any, ...], _: int, __: int) -> float:
    return _total(arguments[0])


def _nothing(_: tuple[Any, ...], __: int, ___: int) -> float:
    return 0.0


_COUNTS: dict[str, tuple[str, Count]] = {
    "allreduce": ("all-reduce", _all_reduce),
    "allreduce_coalesced": ("all-reduce", _all_reduce),
    "all_gather_single": ("all-gather", _first),
    "all_gather_single_coalesced": ("all-gather", _first),
    "allgather": ("all-gather", _first),
    "reduce_scatter_single": ("reduce-scatter", _second),
    "reduce_scatter_single_coalesced": ("reduce-scatter", _second),
    "reduce_scatter": ("reduce-scatter", _second),
    "all_to_all_single": ("all-to-all", _all_to_all_single),
    "alltoall": ("all-to-all", _all_to_all),
    "broadcast": ("broadcast", _first),
    "reduce": ("reduce", _first),
    "send": ("send", _all),
    "recv": ("receive", _nothing),
}
"""Kind and count of every method of `ProcessGroup` that a step may reach."""
