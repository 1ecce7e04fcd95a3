"""What a rank's newest steps were made of, in a small file that its agent reads: no step costs a call or a message.

A ring in mapped memory: the rank writes an entry a step, about a microsecond, and goes on whether it is read or not. An
entry that was overwritten before anybody read it is a gap, which the detector of stragglers takes.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

import numpy as np

from orchestrator.health.layout import Floats
from orchestrator.health.phases import ROW, StepPhases

ENTRIES = 256
"""Steps that are kept; an agent that looks once a second misses some of a job with more steps a second."""
_HEAD = struct.Struct("<q")
"""Entries written so far. Written after the entry it counts."""
_ENTRY = struct.Struct(f"<{1 + len(StepPhases._fields)}d")
"""Step (a double holds 2**53 of them) and phases."""
SIZE_BYTES = _HEAD.size + ENTRIES * _ENTRY.size


class StepRing:
    """The writing side. Without a path, or without room for the file, nothing is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._memory: mmap.mmap | None = None
        if path is not None:
            with contextlib.suppress(OSError):
                self._memory = _mapped(path)
        self._written = 0

    def write(self, step: int, phases: StepPhases) -> None:
        """`step` (1-based) is finished."""
        if self._memory is None:
            return
        at = _HEAD.size + self._written % ENTRIES * _ENTRY.size
        _ENTRY.pack_into(self._memory, at, step, *phases)
        self._written += 1
        _HEAD.pack_into(self._memory, 0, self._written)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("w+b") as file:
        os.posix_fallocate(
            file.fileno(), 0, SIZE_BYTES
        )  # a page without room would end the process when written
        return mmap.mmap(file.fileno(), SIZE_BYTES)


def ring_path(pulse: Path) -> Path:
    return pulse.with_suffix(".steps")


def read(path: Path, *, after: int) -> tuple[int, Floats]:
    """(entries written, those beyond the first `after` that are still there), the latter as (entries, step and phases).

    Nothing of a rank that has no ring, or has none yet.
    """
    nothing = np.empty((0, len(ROW) - 1))
    try:
        with path.open("rb") as file:
            memory = file.read()
            file.seek(0)
            head = file.read(_HEAD.size)
    except OSError:
        return after, nothing
    if len(memory) < SIZE_BYTES:
        return after, nothing
    (written,), (meanwhile,) = _HEAD.unpack_from(memory), _HEAD.unpack(head)
    # The rank may have gone on while it was read: the entry behind the newest one may be half written.
    first = max(after, meanwhile - ENTRIES + 1, 0)
    if first >= written:
        return written, nothing
    ring = np.frombuffer(memory, dtype="<f8", offset=_HEAD.size).reshape(ENTRIES, -1)
    return written, ring[np.arange(first, written) % ENTRIES]
