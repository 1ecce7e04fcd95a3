"""Follows the logs of several ranks through repairs: every attempt of each rank, in order, nothing twice."""

from __future__ import annotations

from dataclasses import dataclass

from api.events import Batch, StreamItem
from api.problems import ProblemError, invalid
from api.rank_logs import LogText, RankLogs
from api.schemas.jobs import LogPiece
from orchestrator.spec.violations import Violation

MAX_RANKS = 16
"""Ranks a stream: each costs a question to the controller every poll."""
_CHUNK_BYTES = 64 << 10


@dataclass(slots=True)
class Position:
    """Where a reader is in one rank's logs. Attempt 0: it has seen nothing yet."""

    attempt: int
    offset: int


class LogFollower:
    """The poll of a log stream. Its event ids hold the position of every rank: `0=2:4096,1=2:1024`."""

    def __init__(self, logs: RankLogs, positions: dict[int, Position], *, tail_bytes: int) -> None:
        self._logs = logs
        self._positions = positions
        self._tail_bytes = tail_bytes

    def poll(self) -> Batch:
        end = self._logs.end_state()  # read first: what is written after it is found by the next poll
        newest = self._logs.newest_attempt()
        items = []
        for rank, position in self._positions.items():
            found = self._next(rank, position, newest)
            if found is not None and found.text:
                piece = LogPiece(rank=rank, attempt=found.attempt, offset=found.offset, text=found.text)
                items.append(StreamItem(format_positions(self._positions), "log", piece))
        return Batch(items, end=None if items else end, more=bool(items))

    def _next(self, rank: int, position: Position, newest: int) -> LogText | None:
        """The next text of `rank`, with `position` moved behind it; None when there is none now."""
        if position.attempt == 0:
            found = self._read(rank, None, -self._tail_bytes)
        else:
            found = self._read(rank, position.attempt, position.offset)
            if found is None or not found.text:
                found = self._next_attempt(rank, position, newest)
        if found is not None:
            position.attempt, position.offset = found.attempt, found.next_offset
        return found

    def _next_attempt(self, rank: int, position: Position, newest: int) -> LogText | None:
        """The beginning of the first later attempt in which the rank wrote a log."""
        later = (self._read(rank, attempt, 0) for attempt in range(position.attempt + 1, newest + 1))
        return next((found for found in later if found is not None), None)

    def _read(self, rank: int, attempt: int | None, offset: int) -> LogText | None:
        try:
            return self._logs.read(rank, attempt=attempt, offset=offset, limit=_CHUNK_BYTES)
        except ProblemError as problem:
            if problem.status == 404:
                return None
            raise


def format_positions(positions: dict[int, Position]) -> str:
    return ",".join(f"{rank}={position.attempt}:{position.offset}" for rank, position in positions.items())


def parse_positions(text: str) -> dict[int, Position]:
    """The positions in a Last-Event-ID; 422 when this stream never sent it."""
    positions: dict[int, Position] = {}
    try:
        for part in text.split(","):
            rank, _, place = part.partition("=")
            attempt, _, offset = place.partition(":")
            positions[_whole(rank, 2**31)] = Position(_whole(attempt, 2**31), _whole(offset, 2**63))
    except ValueError:
        positions.clear()
    if not 1 <= len(positions) <= MAX_RANKS:
        raise invalid([Violation("header.last-event-id", text, "must be the id of an event of this stream")])
    return positions


def _whole(text: str, limit: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < limit):
        raise ValueError(text)
    return int(text)
