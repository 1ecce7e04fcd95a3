"""Log files of ranks: where they lie in the job directory, and reading parts of them."""

from __future__ import annotations

import contextlib
from pathlib import Path

from orchestrator.lifecycle.ports import LogChunk
from orchestrator.lifecycle.reports import LogTail

READ_LIMIT_BYTES = 1 << 20
TAIL_BYTES = (4 << 10, 64 << 10)
"""Least and most kept of one rank's log at the end of an attempt."""
TAILS_BYTES = 4 << 20
"""Kept of all ranks' logs of one attempt together, while the least of each allows."""


def log_path(job_directory: str, attempt: int, rank: int) -> Path:
    """On shared storage, so that a rank's log outlives its node. Attempts are numbered over the life of the job."""
    return Path(job_directory) / "logs" / f"attempt-{attempt:04d}" / f"rank-{rank:05d}.log"


def read(path: Path, *, attempt: int, rank: int, offset: int, limit: int) -> LogChunk:
    """`limit` bytes from `offset` (negative: from the end), cut at READ_LIMIT_BYTES; a log not yet begun is empty."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            start = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(start)
            return LogChunk(attempt, rank, start, file.read(max(0, min(limit, READ_LIMIT_BYTES))), size)
    except (FileNotFoundError, NotADirectoryError):
        return LogChunk(attempt, rank, 0, b"", 0)


def append(path: Path, text: str) -> None:
    """Adds to a rank's log on behalf of a rank that cannot; what cannot be written is lost."""
    with contextlib.suppress(OSError), path.open("a") as file:
        file.write(text)


def tail_bytes(world_size: int) -> int:
    least, most = TAIL_BYTES
    return max(least, min(most, TAILS_BYTES // world_size))


def tail(path: Path, *, attempt: int, rank: int, limit: int) -> LogTail:
    """The last `limit` bytes as text; a first line that was cut is left out. Says so of a log that cannot be read."""
    try:
        chunk = read(path, attempt=attempt, rank=rank, offset=-limit, limit=limit)
    except OSError as error:
        return LogTail(attempt, rank, f"[the log cannot be read: {error}]\n", 0)
    data = chunk.data
    if chunk.offset > 0 and b"\n" in data:
        data = data[data.index(b"\n") + 1 :]
    return LogTail(attempt, rank, data.decode("utf-8", errors="replace"), chunk.size)
