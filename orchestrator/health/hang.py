"""Who hangs: from what every rank was last known to do to the ranks that the others wait for, and the sentence.

A rank waits for those members of a group that have begun fewer collectives on it than the one it is inside of. Those
may wait themselves; who is waited for and waits for nobody is missing. A process that is stopped, or blocked in the
kernel, is missing whatever it did last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.health.standing import Channel, Standing, Wait

NAMED_LIMIT = 3
"""Ranks that a sentence describes."""
RANKS_LIMIT = 128
"""Ranks whose standing is kept with the event."""
MEMBERS_LIMIT = 32
"""Ranks of a group that are kept with it."""
STACKS_LIMIT = 8
"""Different stacks kept with the event; every rank's is in its log."""
STACK_LIMIT = 6 << 10
"""Characters kept of one."""
STATES = {
    "T": "is stopped by a signal",
    "t": "is held by a debugger",
    "D": "is blocked in the kernel, as by a file system that does not answer",
    "Z": "has ended",
}
_FRAME = re.compile(r'^  File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_THREAD_ID = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Hang:
    summary: str
    """One sentence for people, without an end."""
    missing: tuple[int, ...]
    """Ranks that the others wait for; empty when nobody can be told from the others."""
    stack: str
    """Of the first of them, or of any rank when there is none: the end of its stacks, STACK_LIMIT characters, where the
    main thread is. Empty when it gave none."""
    data: Mapping[str, Any]
    """JSON values: what the ranks were doing, and their stacks."""


def explain(standings: Sequence[Standing], *, limit_s: float) -> Hang:
    """Of a gang of which no rank got on for longer than `limit_s`."""
    by_rank = {standing.rank: standing for standing in standings}
    late = _Late(by_rank)
    missing = tuple(sorted(_missing(by_rank, late)))
    still_s = min(standing.still_s for standing in standings)
    first = by_rank[missing[0]] if missing else max(standings, key=lambda s: bool(s.stack))
    finished = min(standing.step for standing in standings)
    head = f"no rank got on for {still_s:.0f} s after step {finished}: "
    summary = head + (_of_missing(missing, by_rank, late) if missing else _of_all(by_rank))
    data = {
        "missing": list(missing),
        "still_s": round(still_s, 1),
        "limit_s": round(limit_s, 1),
        "step": finished,
        "ranks": [_as_json(s) for s in _missing_first(standings, missing)[:RANKS_LIMIT]],
        "stacks": _stacks(_missing_first(standings, missing)),
    }
    return Hang(summary, missing, first.stack[-STACK_LIMIT:], data)


def unanswered(ranks: Sequence[int], *, silent_s: float) -> Hang:
    """Of a gang that said nothing for `silent_s`, whose agents do not tell what `ranks` do."""
    summary = (
        f"no rank told anything for {silent_s:.0f} s, and nobody could be asked what {_ranks(ranks)} did"
    )
    data = {"missing": list(ranks[:RANKS_LIMIT]), "still_s": round(silent_s, 1), "ranks": [], "stacks": []}
    return Hang(summary, tuple(ranks), "", data)


class _Late:
    """Who has not begun what; every question is answered once, as thousands of ranks ask the same."""

    def __init__(self, by_rank: Mapping[int, Standing]) -> None:
        self._by_rank = by_rank
        self._issued: dict[str, dict[int, int]] = {}
        """By channel and rank."""
        for rank, standing in by_rank.items():
            for channel in standing.channels:
                self._issued.setdefault(channel.name, {})[rank] = channel.issued
        self._known: dict[Wait, frozenset[int]] = {}

    def waited_for(self, rank: int) -> frozenset[int]:
        """Ranks that have not begun the collective that `rank` is inside of."""
        standing = self._by_rank[rank]
        wait = standing.wait
        channel = standing.channel(wait.channel) if wait else None
        if wait is None or channel is None:
            return frozenset()
        if wait not in self._known:
            issued = self._issued[wait.channel]
            self._known[wait] = frozenset(
                member
                for member in channel.ranks
                if member in self._by_rank and issued.get(member, 0) < wait.number
            )
        return self._known[wait]


def _missing(by_rank: Mapping[int, Standing], late: _Late) -> set[int]:
    stuck = {rank for rank, standing in by_rank.items() if standing.state in STATES}
    if stuck:
        return stuck
    anybody: set[int] = set().union(*set(map(late.waited_for, by_rank)))
    roots = {rank for rank in anybody if not late.waited_for(rank)}
    if roots:
        return roots
    idle = {rank for rank, standing in by_rank.items() if standing.wait is None}
    return idle if len(idle) < len(by_rank) else set()


def _of_missing(missing: Sequence[int], by_rank: Mapping[int, Standing], late: _Late) -> str:
    told = [
        f"rank {rank} on {by_rank[rank].node} {_described(rank, by_rank, late)}"
        for rank in missing[:NAMED_LIMIT]
    ]
    more = f"; and {len(missing) - NAMED_LIMIT} more" if len(missing) > NAMED_LIMIT else ""
    named = set(missing)
    waiting = [rank for rank in sorted(by_rank) if rank not in named and by_rank[rank].wait is not None]
    follow = f"; {_ranks(waiting)} wait{'s' if len(waiting) == 1 else ''}" if waiting else ""
    return "; ".join(told) + more + follow


def _described(rank: int, by_rank: Mapping[int, Standing], late: _Late) -> str:
    standing = by_rank[rank]
    said = [STATES[standing.state]] if standing.state in STATES else []
    channel = _missed(rank, by_rank, late)
    if channel is not None:
        said.append(f"is missing in the {channel.kind} {_place(channel)}")
    if where := _where(standing):
        said.append(f"was found {where}")
    return ", ".join(said) or "did not answer"


def _missed(rank: int, by_rank: Mapping[int, Standing], late: _Late) -> Channel | None:
    """The channel of the first rank that waits for `rank`, as that one counted it."""
    for other, standing in by_rank.items():
        if standing.wait is not None and rank in late.waited_for(other):
            return standing.channel(standing.wait.channel)
    return None


def _of_all(by_rank: Mapping[int, Standing]) -> str:
    """Nobody can be told from the others."""
    waits = {standing.wait for standing in by_rank.values()}
    one = next(iter(by_rank.values()))
    if len(waits) == 1 and one.wait is not None and (channel := one.channel(one.wait.channel)):
        return f"all of them wait in the same {channel.kind} {_place(channel)}, as when the network fails"
    if None not in waits:
        return "all of them wait, in different collectives, for one another"
    told = [
        f"rank {rank} {where}"
        for rank, standing in list(by_rank.items())[:NAMED_LIMIT]
        if (where := _where(standing))
    ]
    return "none waits for another; " + ("; ".join(told) or "none gave its stack")


def _place(channel: Channel) -> str:
    ranks = ", ".join(map(str, channel.ranks[:8])) + (", ..." if len(channel.ranks) > 8 else "")
    return f"of axis {channel.axis} (ranks {ranks})"


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) > 8:
        return f"{len(ranks)} ranks"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _where(standing: Standing) -> str:
    """The innermost Python frame of the main thread, which faulthandler writes last."""
    main = re.split(r"^(?:Current t|T)hread 0x.*$", standing.stack, flags=re.MULTILINE)[-1]
    frame = _FRAME.search(main)
    if frame is None:
        return ""
    return f"in {frame['function']} ({frame['file'].rsplit('/', 1)[-1]}, line {frame['line']})"


def _missing_first(standings: Sequence[Standing], missing: Iterable[int]) -> list[Standing]:
    named = set(missing)
    return sorted(standings, key=lambda standing: (standing.rank not in named, standing.rank))


def _as_json(standing: Standing) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rank": standing.rank,
        "node": standing.node,
        "step": standing.step,
        "phase": standing.phase,
        "part": standing.part,
        "state": standing.state,
        "still_s": round(standing.still_s, 1),
    }
    wait = standing.wait
    if wait is not None and (channel := standing.channel(wait.channel)) is not None:
        found["waits_in"] = {
            "collective": channel.kind,
            "axis": channel.axis,
            "number": wait.number,
            "ranks": list(channel.ranks[:MEMBERS_LIMIT]),
        }
    return found


def _stacks(standings: Sequence[Standing]) -> list[dict[str, Any]]:
    """Equal stacks once, with the ranks that gave them."""
    groups: dict[str, list[int]] = {}
    for standing in standings:
        if standing.stack:
            groups.setdefault(_THREAD_ID.sub("0x", standing.stack)[-STACK_LIMIT:], []).append(standing.rank)
    return [{"ranks": ranks, "stack": stack} for stack, ranks in list(groups.items())[:STACKS_LIMIT]]
