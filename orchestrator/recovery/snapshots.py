"""From which snapshots in memory a gang can go on: inventories of all vaults -> what to load, as a value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Fence = tuple[int, int]
"""(incarnation, attempt): who writes. One that is older than the newest a vault has heard of is refused."""


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """The snapshots that all ranks of one attempt took after the same step. A later one stands for later work, also
    when its step is smaller: its attempt began from an older checkpoint, or went back to one."""

    incarnation: int
    attempt: int
    rewinds: int
    """How often the attempt had gone back to a checkpoint."""
    step: int

    @property
    def key(self) -> tuple[int, int, int, int]:
        return (self.incarnation, self.attempt, self.rewinds, self.step)


@dataclass(frozen=True, slots=True)
class Copy:
    """One rank's snapshot as one node holds it."""

    node: str
    rank: int
    generation: Generation
    bytes: int
    sha256: str
    plan: str
    """What it depends on besides its rank: `plan_digest`."""


@dataclass(frozen=True, slots=True)
class Restorable:
    """A generation of which every rank has at least one copy."""

    generation: Generation
    sources: tuple[tuple[str, ...], ...]
    """By rank the nodes that hold its snapshot, its own node first."""


@dataclass(frozen=True, slots=True)
class Found:
    restorable: tuple[Restorable, ...] = ()
    """Newest first: should one prove damaged, the next may do."""
    refused: tuple[tuple[int, str], ...] = ()
    """(step, why) of generations that cannot be used, newest first."""


def plan_digest(parallelism: Mapping[str, Any], world_size: int) -> str:
    """A name for all that decides which part of the state a rank holds."""
    told = json.dumps([parallelism, world_size], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(told.encode()).hexdigest()


def restorable(copies: Iterable[Copy], homes: Sequence[str], plan: str) -> Found:
    """What the ranks that will run on the nodes `homes` (by rank) under `plan` can go on from."""
    generations: dict[Generation, list[Copy]] = {}
    for copy in copies:
        generations.setdefault(copy.generation, []).append(copy)
    usable: list[Restorable] = []
    refused: list[tuple[int, str]] = []
    for generation in sorted(generations, reverse=True):
        held = generations[generation]
        if any(copy.plan != plan for copy in held):
            refused.append(
                (generation.step, "it was taken under another plan, which only storage can be read under")
            )
            continue
        sources: list[list[str]] = [[] for _ in homes]
        for copy in sorted(held, key=lambda c: (c.rank, c.node)):
            sources[copy.rank].append(copy.node)
        missing = [rank for rank, nodes in enumerate(sources) if not nodes]
        if missing:
            refused.append((generation.step, f"no node holds that of {_ranks(missing)}"))
            continue
        usable.append(
            Restorable(
                generation,
                tuple(
                    tuple(sorted(n, key=lambda node: node != home))
                    for n, home in zip(sources, homes, strict=True)
                ),
            )
        )
    return Found(tuple(usable), tuple(refused))


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
