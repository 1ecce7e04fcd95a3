"""Stacks of rank processes, asked for from outside by a signal that the rank's C handler answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from actors import processes
from actors.pulse import STACK_SIGNAL, stacks_path

ANSWER_S = 2.0
"""Time of all ranks of a node to answer. A handler in C takes milliseconds; a stopped process never runs it."""
LOOK_EVERY_S = 0.05
LIMIT_BYTES = 64 << 10


def collect(ranks: Mapping[int, tuple[int, Path]]) -> dict[int, str]:
    """By rank, of those given as (pid, path of its pulse): its stacks now. A rank that gives none is left out."""
    before = {}
    for rank, (pid, pulse) in ranks.items():
        path = stacks_path(pulse)
        if not path.exists():
            continue  # it has no handler yet, and the signal would end it
        before[rank] = path.stat().st_size
        processes.signal_quietly(pid, STACK_SIGNAL)
    deadline = time.monotonic() + ANSWER_S
    found: dict[int, str] = {}
    sizes: dict[int, int] = {}
    while len(found) < len(before) and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)
        for rank in before.keys() - found.keys():
            path = stacks_path(ranks[rank][1])
            size = path.stat().st_size
            if size > before[rank] and size == sizes.get(rank):  # it is done writing
                found[rank] = _tail(path, before[rank])
            sizes[rank] = size
    return found


def _tail(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(LIMIT_BYTES).decode(errors="replace")
