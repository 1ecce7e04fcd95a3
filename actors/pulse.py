"""A rank's pulse: what it does, in a small file that others read while the rank may be stopped or in an endless loop.

The rank writes to mapped memory, below a microsecond a write and without a call of the system, so each collective can
leave its trace. What does not change after it was met (the ranks of a group) is a line of a second file.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import signal
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from orchestrator.health.standing import Channel, Standing, Wait

STACK_SIGNAL = signal.SIGRTMIN + 5
"""Makes a rank write its stacks, from a handler in C: also while it waits outside Python. A signal that no library is
known to use."""
_HEAD = struct.Struct("<qqd16s16s")
"""Finished steps, moves, monotonic time of the last one, phase, part."""
_WAIT = struct.Struct("<qq")
"""Channel the rank is inside of, -1: none; number of the collective there."""
_CHANNEL = struct.Struct("<q16s")
"""Issued, kind of the newest."""
_WAIT_AT = 64
_CHANNELS_AT = 128
CHANNELS_LIMIT = 500
"""Channels that are counted; those met later are not."""
SIZE_BYTES = _CHANNELS_AT + CHANNELS_LIMIT * _CHANNEL.size


class Pulse:
    """The writing side. Without a path, as in a rank outside a gang, it writes to memory that nobody reads."""

    def __init__(self, path: Path | None = None) -> None:
        self._memory: mmap.mmap | bytearray = bytearray(SIZE_BYTES)
        self._lines: TextIO | None = None
        if path is not None:
            with contextlib.suppress(OSError):  # no room: training does not end for want of it
                self._memory, self._lines = _mapped(path), _channels_path(path).open("w")
        self._issued: list[int] = []
        self._known: dict[str, int] = {}
        self._step, self._moves, self._moved_at, self._phase, self._part = 0, 0, 0.0, b"", b""
        self.leave()

    def began(self, phase: str) -> None:
        """The rank begins `phase` of its program, one of `orchestrator.health.standing`."""
        self._phase, self._part = phase.encode(), b""
        self.moved()

    def part(self, name: str) -> None:
        """The part of a step that begins. It is told, and is no progress."""
        self._part = name.encode()
        self._write()

    def finished(self, step: int) -> None:
        """`step` steps are finished."""
        self._step = step
        self.moved()

    def moved(self) -> None:
        """The rank got on within its phase."""
        self._moves += 1
        self._moved_at = time.monotonic()
        self._write()

    def channel(self, name: str, axis: str, ranks: Sequence[int]) -> int:
        """A number for the channel `name`, to be given to `enter`: the same when asked again, -1 beyond the limit."""
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._issued) >= CHANNELS_LIMIT:
            return -1
        self._known[name] = len(self._issued)
        self._issued.append(0)
        if self._lines is not None:
            with contextlib.suppress(OSError):
                print(json.dumps([name, axis, _packed(ranks)]), file=self._lines, flush=True)
        return self._known[name]

    def enter(self, channel: int, kind: bytes) -> int:
        """The rank begins its next collective on `channel`; returns its number there, 1, 2, 3 ..."""
        if channel < 0:
            return 0
        number = self._issued[channel] = self._issued[channel] + 1
        _CHANNEL.pack_into(self._memory, _CHANNELS_AT + channel * _CHANNEL.size, number, kind)
        _WAIT.pack_into(self._memory, _WAIT_AT, channel, number)
        return number

    def wait(self, channel: int, number: int) -> None:
        """The rank waits for collective `number` of `channel`, begun before."""
        _WAIT.pack_into(self._memory, _WAIT_AT, channel, number)

    def leave(self) -> None:
        """The rank waits for nobody."""
        _WAIT.pack_into(self._memory, _WAIT_AT, -1, 0)

    def _write(self) -> None:
        _HEAD.pack_into(self._memory, 0, self._step, self._moves, self._moved_at, self._phase, self._part)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("w+b") as file:
        os.posix_fallocate(
            file.fileno(), 0, SIZE_BYTES
        )  # a page without room would end the process when written
        return mmap.mmap(file.fileno(), SIZE_BYTES)


def write_stacks_on_signal(path: Path) -> None:
    """From now on STACK_SIGNAL appends the stacks of all threads of this process to `path`."""
    with contextlib.suppress(OSError):
        # Given as a descriptor, which nothing closes: the handler works until the process ends.
        descriptor = os.open(stacks_path(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.register(STACK_SIGNAL, file=descriptor, all_threads=True, chain=False)


def read(path: Path, *, rank: int, node: str, state: str = "") -> Standing:
    """What the pulse at `path` says; a rank that has written none yet has no phase and has never moved."""
    try:
        memory = path.read_bytes()
    except OSError:
        memory = b""
    if len(memory) < SIZE_BYTES:
        return Standing(rank, node, state=state)
    step, moves, moved_at, phase, part = _HEAD.unpack_from(memory, 0)
    inside, number = _WAIT.unpack_from(memory, _WAIT_AT)
    channels = _read_channels(path, memory)
    return Standing(
        rank,
        node,
        step=step,
        moves=moves,
        still_s=max(0.0, time.monotonic() - moved_at) if moves else 0.0,
        phase=_text(phase),
        part=_text(part),
        state=state,
        wait=Wait(channels[inside].name, number) if 0 <= inside < len(channels) else None,
        channels=channels,
    )


def _read_channels(path: Path, memory: bytes) -> tuple[Channel, ...]:
    try:
        lines = _channels_path(path).read_text().splitlines()
    except OSError:
        return ()
    found = []
    for index, line in enumerate(lines):
        try:
            name, axis, ranks = json.loads(line)
        except ValueError:
            break  # the rank is just writing it
        issued, kind = _CHANNEL.unpack_from(memory, _CHANNELS_AT + index * _CHANNEL.size)
        found.append(Channel(name, axis, _unpacked(ranks), issued, _text(kind)))
    return tuple(found)


def _packed(ranks: Sequence[int]) -> list[int] | dict[str, list[int]]:
    """Groups of a mesh are regular, and one may hold all ranks of the job: first, end and step then."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    regular = range(ranks[0], ranks[0] + step * len(ranks), step) if step > 0 else range(0)
    if list(regular) == list(ranks):
        return {"range": [regular.start, regular.stop, regular.step]}
    return list(ranks)


def _unpacked(ranks: list[int] | dict[str, list[int]]) -> Sequence[int]:
    return range(*ranks["range"]) if isinstance(ranks, dict) else tuple(ranks)


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")


def _channels_path(path: Path) -> Path:
    return path.with_suffix(".channels")


def stacks_path(path: Path) -> Path:
    return path.with_suffix(".stacks")
