"""Server-sent events (WHATWG HTML, section 9.2): history by cursor first, then what is new, until the job is over.

SQL is asked again every poll interval; nothing is pushed, so a reader sees the same rows whichever process wrote them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
from anyio.to_thread import run_sync
from fastapi import Request
from fastapi.sse import format_sse_event
from prometheus_client import Gauge
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from api.problems import ProblemError, answers
from api.schemas.jobs import StreamEnd, StreamProblem
from orchestrator.lifecycle.states import JobState

POLL_INTERVAL_S = 0.3
HEARTBEAT_S = 10.0
"""Proxies close a connection that is silent for 30 to 60 s."""
POLL_THREADS = 16
"""Threads of their own for polls: a slow controller behind log streams must not hold up plain requests."""
MAX_STREAMS = 256
"""Open streams at once, over all clients; each costs one query a poll."""


@dataclass(frozen=True, slots=True)
class StreamItem:
    id: str
    """Cursor behind this item: sent back as Last-Event-ID it continues with the next one."""
    event: str
    body: BaseModel


@dataclass(frozen=True, slots=True)
class Batch:
    items: Sequence[StreamItem]
    end: JobState | None = None
    """State of the job once it is over and nothing more will come."""
    more: bool = False
    """True when the next batch is there already."""


class StreamSlots:
    """Counts the open streams of this process; touched on the event loop only."""

    def __init__(self, gauge: Gauge, limit: int = MAX_STREAMS) -> None:
        self.limit = limit
        self.open = 0
        self.threads = anyio.CapacityLimiter(POLL_THREADS)
        self._gauge = gauge

    def change(self, by: int) -> None:
        self.open += by
        self._gauge.set(self.open)


async def stream_slot(request: Request) -> AsyncIterator[None]:
    """Dependency: holds one of the slots until the answer is over; 503 when none is left."""
    slots: StreamSlots = request.app.state.stream_slots
    if slots.open >= slots.limit:
        raise ProblemError(
            503,
            "too-many-streams",
            f"All {slots.limit} streams are in use; try again in a moment.",
            headers={"Retry-After": "5"},
        )
    slots.change(+1)
    try:
        yield
    finally:
        slots.change(-1)


def event_stream(request: Request, poll: Callable[[], Batch]) -> StreamingResponse:
    """Answers with what `poll` finds, called in a worker thread; `poll` keeps its own cursor."""
    return StreamingResponse(
        _frames(request, poll),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _frames(request: Request, poll: Callable[[], Batch]) -> AsyncIterator[bytes]:
    slots: StreamSlots = request.app.state.stream_slots
    yield format_sse_event(comment="atoll", retry=2000)
    last_sent = time.monotonic()
    while not await request.is_disconnected():
        try:
            batch = await run_sync(poll, limiter=slots.threads)
        except ProblemError as problem:
            yield format_sse_event(
                event="problem", data_str=StreamProblem(detail=problem.detail).model_dump_json()
            )
            return
        for item in batch.items:
            yield format_sse_event(id=item.id, event=item.event, data_str=item.body.model_dump_json())
        if batch.end is not None:
            yield format_sse_event(event="end", data_str=StreamEnd(state=batch.end).model_dump_json())
            return
        now = time.monotonic()
        if batch.items:
            last_sent = now
        elif now - last_sent >= HEARTBEAT_S:
            yield format_sse_event(comment="still here")
            last_sent = now
        if not batch.more:
            await anyio.sleep(POLL_INTERVAL_S)


def stream_answers(event: str, body: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a stream of `event`s with this body, as OpenAPI 3.2 has it."""
    bodies = [
        {"$ref": f"#/components/schemas/{model.__name__}"} for model in (body, StreamEnd, StreamProblem)
    ]
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": {"oneOf": bodies}}
    item = {
        "type": "object",
        "required": ["data", "event"],
        "properties": {
            "event": {"type": "string", "enum": [event, "end", "problem"]},
            "data": data,
            "id": {"type": "string"},
            "retry": {"type": "integer", "minimum": 0},
        },
    }
    text = (
        f"Server-sent events `{event}`, each with a {body.__name__} as data and an id to go on after. The last one is "
        "`end` when the job is over, or `problem` when the stream has to stop earlier."
    )
    return {
        200: {"description": text, "content": {"text/event-stream": {"itemSchema": item}}},
        **answers(404, 422, 503),
    }
