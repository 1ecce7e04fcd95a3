"""Logs of ranks: a part, a stream that follows, the whole as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import StreamingResponse

from api.dependencies import LARGEST_ID, Attempt, DatabaseOf, JobId, LiveLogsOf, Rank
from api.events import event_stream, stream_answers, stream_slot
from api.log_stream import MAX_RANKS, LogFollower, Position, parse_positions
from api.problems import ProblemError, answers, invalid
from api.rank_logs import MAX_CHUNK_BYTES, LogText, RankLogs
from api.schemas.jobs import LogPiece, LogView
from orchestrator.spec.violations import Violation

router = APIRouter(prefix="/api/v1/jobs/{job_id}/logs", tags=["logs"])


@router.get("", operation_id="readLog", responses=answers(404, 422, 503))
def read_log(
    job_id: JobId,
    database: DatabaseOf,
    live_logs: LiveLogsOf,
    rank: Rank = 0,
    attempt: Attempt = None,
    offset: Annotated[
        int, Query(ge=-(2**53), le=2**53, description="First byte; negative counts from the end of the file.")
    ] = -65536,
    limit: Annotated[int, Query(ge=16, le=MAX_CHUNK_BYTES, description="Bytes at most.")] = 65536,
) -> LogView:
    """A part of one rank's log. `next_offset` of the answer goes on where it ends."""
    logs = RankLogs(database, live_logs, job_id)
    logs.check_rank(rank)
    found = logs.read(rank, attempt=attempt, offset=offset, limit=limit)
    return LogView(
        attempt=found.attempt,
        rank=found.rank,
        offset=found.offset,
        text=found.text,
        size=found.size,
        next_offset=found.next_offset,
        live=found.live,
    )


@router.get(
    "/stream",
    operation_id="streamLogs",
    response_class=StreamingResponse,
    dependencies=[Depends(stream_slot)],
    responses=stream_answers("log", LogPiece),
)
def stream_logs(
    job_id: JobId,
    request: Request,
    database: DatabaseOf,
    live_logs: LiveLogsOf,
    rank: Annotated[
        list[Annotated[int, Query(ge=0, le=LARGEST_ID)]] | None,
        Query(
            description=f"Ranks to follow, {MAX_RANKS} at most; may be repeated. Left out: the first {MAX_RANKS}."
        ),
    ] = None,
    tail_bytes: Annotated[
        int,
        Query(
            ge=0,
            le=MAX_CHUNK_BYTES,
            description="Where to begin: bytes before the end; 0: at the first attempt.",
        ),
    ] = 65536,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event seen; wins over `rank` and `tail_bytes`.")
    ] = None,
) -> StreamingResponse:
    """Log text as it is written, through repairs, until the job is over."""
    logs = RankLogs(database, live_logs, job_id)
    if last_event_id is not None:
        positions = parse_positions(last_event_id)
    else:
        ranks = sorted(set(rank)) if rank else list(range(min(MAX_RANKS, logs.world_size)))
        if len(ranks) > MAX_RANKS:
            raise invalid([Violation("query.rank", ranks, f"{MAX_RANKS} ranks a stream at most")])
        positions = {number: Position(0 if tail_bytes else 1, 0) for number in ranks}
    for number in positions:
        logs.check_rank(number)
    return event_stream(request, LogFollower(logs, positions, tail_bytes=tail_bytes).poll)


@router.get(
    "/download",
    operation_id="downloadLog",
    response_class=StreamingResponse,
    responses={
        200: {"description": "The log as a file.", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **answers(404, 422, 503),
    },
)
def download_log(
    job_id: JobId, database: DatabaseOf, live_logs: LiveLogsOf, rank: Rank = 0, attempt: Attempt = None
) -> StreamingResponse:
    """One rank's whole log, as far as it was kept, up to its size at the time of asking."""
    logs = RankLogs(database, live_logs, job_id)
    logs.check_rank(rank)
    first = logs.read(rank, attempt=attempt, offset=0, limit=MAX_CHUNK_BYTES)
    name = f"{logs.job_name}-attempt{first.attempt}-rank{rank}.log"
    return StreamingResponse(
        _whole_file(logs, first),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _whole_file(logs: RankLogs, first: LogText) -> Iterator[bytes]:
    """Part by part, so that no file is ever whole in memory."""
    piece = first
    while piece.text:
        yield piece.text.encode("utf-8")
        if piece.next_offset >= first.size:
            return
        try:
            piece = logs.read(
                first.rank, attempt=first.attempt, offset=piece.next_offset, limit=MAX_CHUNK_BYTES
            )
        except ProblemError as problem:
            yield f"\n[cut here: {problem.detail}]\n".encode()
            return
