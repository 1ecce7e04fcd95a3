"""One rank's log, wherever it is: with the controller while the rank lives, in SQL after its attempt has ended."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from api.live_logs import LiveLogs, unavailable
from api.problems import ProblemError, invalid
from orchestrator.lifecycle.ports import GangRef
from orchestrator.lifecycle.states import JobState, end_state
from orchestrator.spec.violations import Violation
from orchestrator.store import attempts, jobs, logs, placements
from orchestrator.store.engine import Database
from orchestrator.store.tables import Job, RankLog

MAX_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LogText:
    attempt: int
    rank: int
    offset: int
    text: str
    next_offset: int
    size: int
    live: bool


class RankLogs:
    """Reads logs of one job. Raises ProblemError: 404 for no job or no log, 503 while only a controller could tell."""

    def __init__(self, database: Database, live_logs: LiveLogs, job_id: str) -> None:
        self._database = database
        self._live_logs = live_logs
        self._job_id = job_id
        with database.read() as session:
            job = jobs.get(session, job_id)
        self.job_name = job.name
        self.world_size = job.world_size

    def check_rank(self, rank: int) -> None:
        if rank >= self.world_size:
            message = f"the job has ranks 0 to {self.world_size - 1}"
            raise invalid([Violation("query.rank", rank, message)])

    def end_state(self) -> JobState | None:
        """The job's state when it is over, else None."""
        with self._database.read() as session:
            return end_state(jobs.get(session, self._job_id).state)

    def newest_attempt(self) -> int:
        """0 before the first."""
        with self._database.read() as session:
            return attempts.newest_number(session, self._job_id)

    def read(self, rank: int, *, attempt: int | None, offset: int, limit: int) -> LogText:
        """At most `limit` bytes from `offset` on; a negative offset counts from the end of the file.

        A kept copy is only the end of a long file: asked for more, it answers from where it begins.
        """
        with self._database.read() as session:
            kept = logs.get(session, self._job_id, rank=rank, attempt=attempt)
            gang = _living_gang(session, jobs.get(session, self._job_id))
            begun = attempt is None or attempts.is_known(session, self._job_id, attempt)
        if gang is not None and (attempt is None or kept is None):
            found = self._read_live(gang, rank, attempt, offset, limit, kept)
            # A log that is not there yet is empty; one of an attempt that never was is not there.
            if found is not None and (begun or found.size > 0):
                return found
        if kept is None:
            of = "" if attempt is None else f" in attempt {attempt}"
            raise ProblemError(404, "no-log", f"Rank {rank} of this job has no log{of} yet.")
        return _read_kept(kept, offset, limit)

    def _read_live(
        self, gang: GangRef, rank: int, attempt: int | None, offset: int, limit: int, kept: RankLog | None
    ) -> LogText | None:
        """None when the controller knows no such log; its copy, if any, is then the answer."""
        try:
            now = self._database.now()
            chunk = self._live_logs.read(
                gang, rank=rank, attempt=attempt, offset=offset, limit=limit, now=now
            )
        except ProblemError:
            if kept is None:
                raise
            raise unavailable(
                f"it cannot be asked now (attempt {kept.attempt} has a kept log: ask with attempt={kept.attempt})"
            ) from None
        if chunk is None:
            return None
        at_end = chunk.offset + len(chunk.data) >= chunk.size
        start, data = whole_characters(chunk.data, at_start=chunk.offset == 0)
        begin = chunk.offset + start
        text = data.decode("utf-8", "replace")
        if not data and chunk.data and at_end:
            begin = chunk.offset
        return LogText(chunk.attempt, chunk.rank, begin, text, begin + len(data), chunk.size, live=True)


def _living_gang(session: Session, job: Job) -> GangRef | None:
    """The gang whose ranks may be alive now."""
    placed = None if end_state(job.state) is not None else placements.newest(session, job.id)
    return None if placed is None or placed.ended_at is not None else GangRef(job.id, placed.incarnation)


def _read_kept(kept: RankLog, offset: int, limit: int) -> LogText:
    content = kept.text.encode("utf-8")
    size = max(kept.size_bytes, len(content))
    first = size - len(content)
    begin = max(size + offset if offset < 0 else offset, first)
    start, data = whole_characters(content[begin - first :][:limit], at_start=begin == first)
    begin = min(begin + start, size)
    return LogText(kept.attempt, kept.rank, begin, data.decode("utf-8"), begin + len(data), size, live=False)


def whole_characters(data: bytes, *, at_start: bool) -> tuple[int, bytes]:
    """(bytes dropped at the front, the rest) without the halves of characters that a cut at both ends leaves.

    UTF-8 (RFC 3629): a character is at most 4 bytes and its followers are 0b10xxxxxx. Bytes that are no UTF-8 at all
    stay, so that a reader always gets on.
    """
    start = 0
    if not at_start:
        while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
            start += 1
    for back in range(1, min(4, len(data) - start) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        needed = 2 if lead >> 5 == 0b110 else 3 if lead >> 4 == 0b1110 else 4 if lead >> 3 == 0b11110 else 1
        if needed > back and len(data) - start > back:
            return start, data[start:-back]
        if needed > back and back < 4:
            return start, b""
        break
    return start, data[start:]
