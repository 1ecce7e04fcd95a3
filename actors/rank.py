"""A rank process: says hello to its agent, runs the rank program, says how it ended."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from actors import pulse, slot_lock
from actors.messages import Lines, NoteKind, encode
from actors.step_ring import StepRing, ring_path
from actors.training.context import RankContext
from orchestrator.lifecycle.reports import RankFacts
from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import Stragglers

CHAIN_LIMIT = 8
ERROR_LIMIT = 300
"""Characters kept of one exception's message: the pipeline puts whole tensors into its own."""
TRACEBACK_LIMIT = 24 << 10
LINE_LIMIT = 1000
"""Characters kept of a traceback and of each of its lines: it becomes part of the job's row and is in every list of
jobs. The rank's log has it whole."""
PENDING_LIMIT_BYTES = 4 << 20
"""What a rank keeps for an agent that does not read, before it drops step records."""


class AgentReporter:
    """Reports over the agent's socket. Nothing here waits for the agent except `ready`, whose meaning that is."""

    def __init__(self, connection: socket.socket, *, rank: int, attempt: int) -> None:
        self._lines = Lines(connection)
        self._connection = connection
        self._rank = rank
        self._attempt = attempt
        self._pending = b""
        self._stop = False
        self._may_begin = False

    def ready(self) -> None:
        self._say(NoteKind.READY, {})
        self._flush(timeout_s=5.0)  # what an agent that does not read has not taken yet would never be sent
        while not self._may_begin:
            self._listen(blocking=True)

    def step(self, record: Mapping[str, Any]) -> None:
        print(_progress(record), flush=True)
        if len(self._pending) < PENDING_LIMIT_BYTES:
            self._say(NoteKind.STEP, record)

    def event(self, kind: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        print(f"{kind}: {message}", flush=True)
        self._say(NoteKind.EVENT, {"kind": kind, "message": message, "data": dict(data or {})})

    def should_stop(self) -> bool:
        self._listen(blocking=False)
        return self._stop

    def hello(self, facts: RankFacts) -> None:
        self._say(NoteKind.HELLO, {**asdict(facts), "labels": dict(facts.labels)})

    def failed(self, error: BaseException) -> None:
        """Says the exception before anything of this process closes, so that no follower can seem to be earlier."""
        self._say(NoteKind.FAILED, {"errors": _chain(error), "traceback": bounded_traceback(error)})
        self._flush(timeout_s=5.0)

    def done(self) -> None:
        self._say(NoteKind.DONE, {})
        self._flush(timeout_s=5.0)

    def _say(self, kind: NoteKind, data: Mapping[str, Any]) -> None:
        try:
            line = encode(
                {
                    "kind": kind,
                    "at": time.time(),
                    "rank": self._rank,
                    "attempt": self._attempt,
                    "data": dict(data),
                }
            )
        except (TypeError, ValueError) as error:
            print(f"a report could not be sent: {error}", file=sys.stderr, flush=True)
            return
        self._pending += line
        self._flush(timeout_s=0.0)

    def _flush(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._pending:
            self._connection.settimeout(max(0.0, deadline - time.monotonic()))
            try:
                sent = self._connection.send(self._pending)
            except (BlockingIOError, TimeoutError):
                if time.monotonic() >= deadline:
                    return
                continue
            except OSError:
                self._pending = b""  # the agent is gone; so will this process be
                return
            self._pending = self._pending[sent:]

    def _listen(self, *, blocking: bool) -> None:
        self._connection.setblocking(blocking)
        for message in self._lines.receive():
            self._may_begin |= message["is"] == "go"
            self._stop |= message["is"] == "stop"
        if self._lines.ended:
            print("the node agent is gone; this rank ends", file=sys.stderr, flush=True)
            os._exit(1)


def _chain(error: BaseException) -> list[str]:
    """`Type: message` of an exception and of what caused it, outermost first; the first line of each, cut."""
    chain: list[str] = []
    current: BaseException | None = error
    while current is not None and len(chain) < CHAIN_LIMIT:
        line = f"{type(current).__name__}: {current}".strip().splitlines()[0]
        chain.append(line[:ERROR_LIMIT])
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain


def bounded_traceback(error: BaseException) -> str:
    """The traceback of an exception, with its beginning and, as that says most, its end kept of a long one."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    text = "\n".join(line if len(line) <= LINE_LIMIT else f"{line[:LINE_LIMIT]} ..." for line in lines)
    if len(text) <= TRACEBACK_LIMIT:
        return text + "\n"
    cut = TRACEBACK_LIMIT // 4
    return (
        f"{text[:cut]}\n... left out here, the log of the rank has it ...\n{text[cut - TRACEBACK_LIMIT :]}\n"
    )


class Rendezvous:
    """The TCP store of one attempt. Rank 0 serves it, on the socket its zygote opened before any rank was forked."""

    def __init__(self, order: Mapping[str, Any], listener: int | None) -> None:
        self._order = order
        self._listener = listener
        self._store: TCPStore | None = None

    def store(self) -> Store:
        if self._store is None:
            host, port = self._order["rendezvous"]
            serves = self._listener is not None
            self._store = TCPStore(
                host,
                port,
                world_size=None,
                is_master=serves,
                timeout=timedelta(seconds=self._order["timeout_s"]),
                wait_for_workers=False,
                master_listen_fd=self._listener,
            )
        return self._store

    def leave(self, world_size: int, timeout_s: float) -> None:
        """Called after the program: rank 0 stays until all have left, because the store ends with its process."""
        if self._store is None:
            return
        if self._store.add("atoll/left", 1) == world_size:
            self._store.set("atoll/all-left", "1")
        if self._listener is not None:
            self._store.wait(["atoll/all-left"], timedelta(seconds=timeout_s))


def run(order: dict[str, Any], listener: int | None) -> int:
    """Runs one rank in this process and returns its exit code; `order` is what the agent told the zygote."""
    began = time.monotonic()
    pulse.write_stacks_on_signal(Path(order["pulse"]))
    os.environ.update(order["environment"])
    torch.set_num_threads(order["threads"])
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(order["agent"])
    reporter = AgentReporter(connection, rank=order["rank"], attempt=order["attempt"])
    try:
        device = _device()
        slot_lock.acquire(device if device != "cpu" else f"{order['ray_node']}-{order['index']}")
        reporter.hello(_facts(order, device))
        spec = JobSpec.model_validate(order["spec"])
        program = _program(order["program"])
        _seed(spec.training.seed, order["rank"])
        rendezvous = Rendezvous(order, listener)
        print(
            f"rank {order['rank']} attempt {order['attempt']} on {order['node']} slot {order['index']}",
            flush=True,
        )
        program(spec, _context(order, spec, rendezvous, reporter))
        reporter.done()
        rendezvous.leave(order["world_size"], order["timeout_s"])
    except BaseException as error:
        # The log first: once the agent is told, the supervisor reads the log's end and may kill this process.
        with contextlib.suppress(OSError):
            traceback.print_exception(error)
        reporter.failed(error)
        return 1
    print(f"rank {order['rank']} ended after {time.monotonic() - began:.1f} s", flush=True)
    return 0


def _seed(seed: int, rank: int) -> None:
    """Global generators begin from the job, not from the zygote, whose state every rank of its node was born with."""
    own = seed * 1_000_003 + rank
    random.seed(own)
    np.random.seed(own % 2**32)
    torch.manual_seed(own % 2**63)


def _context(
    order: Mapping[str, Any], spec: JobSpec, rendezvous: Rendezvous, reporter: AgentReporter
) -> RankContext:
    measured = spec.health.stragglers is not Stragglers.OFF
    return RankContext(
        rank=order["rank"],
        world_size=order["world_size"],
        attempt=order["attempt"],
        incarnation=order["incarnation"],
        job_directory=Path(order["job_directory"]),
        store=rendezvous.store,
        reporter=reporter,
        timeout=timedelta(seconds=order["timeout_s"]),
        extras=order["extras"],
        pulse=pulse.Pulse(Path(order["pulse"])),
        phases=StepRing(ring_path(Path(order["pulse"])) if measured else None),
    )


def _device() -> str:
    """UUID of the one GPU bound to this process, or `cpu`. Starts CUDA: never in a process that still forks."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def _facts(order: Mapping[str, Any], device: str) -> RankFacts:
    """From the process itself where it can be: the index is the one bound, not the one ordered."""
    return RankFacts(
        rank=order["rank"],
        node=order["labels"].get("host", order["node"]),
        index=int(os.environ["CUDA_VISIBLE_DEVICES"]),
        pid=os.getpid(),
        device=device,
        labels=order["labels"],
    )


def _program(name: str) -> Callable[[JobSpec, RankContext], None]:
    module, separator, function = name.partition(":")
    if not separator:
        raise ValueError(f"rank program {name!r}: expected MODULE:FUNCTION")
    found: Callable[[JobSpec, RankContext], None] = getattr(importlib.import_module(module), function)
    return found


def _progress(record: Mapping[str, Any]) -> str:
    parts = [f"step {record.get('step', '?')}"]
    for key, form in (("loss", "{:.5f}"), ("grad_norm", "{:.4f}"), ("learning_rate", "{:.3g}")):
        if isinstance(record.get(key), float):
            parts.append(f"{key} {form.format(record[key])}")
    seconds, tokens = record.get("step_time_s"), record.get("tokens")
    if isinstance(seconds, float) and seconds > 0:
        parts.append(f"{1e3 * seconds:.0f} ms")
        if isinstance(tokens, int):
            parts.append(f"{tokens / seconds:.0f} tokens/s")
    extra = {key: value for key, value in record.items() if key not in _KNOWN}
    return "  ".join(parts) + (f"  {json.dumps(extra, default=str)}" if extra else "")


_KNOWN = {"step", "loss", "grad_norm", "learning_rate", "tokens", "step_time_s", "tokens_per_s", "cost"}
