"""Two training jobs on one machine that take turns of some seconds, the other one stopped by signal.

Whole runs one after the other are no fair pair on a machine whose speed changes from minute to minute: turns of seconds
are. A turn's rate counts from the end of the first step in it to the end of the last, all that lies between steps too.
"""

from __future__ import annotations

import itertools
import json
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from actors.processes import signal_quietly
from atoll.demo import MARKER, marked

START_PATIENCE_S = 300.0
WARM_STEPS = 5


@dataclass(frozen=True, slots=True)
class Step:
    number: int
    ended_at: float
    """Wall clock."""
    tokens: int
    loss: float


@dataclass(frozen=True, slots=True)
class Turn:
    side: str
    began_at: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Rate:
    """One turn's outcome."""

    side: str
    steps: int
    seconds: float
    tokens_per_s: float


class Side(Protocol):
    """A job that trains, and what has to stand still while it is not its turn."""

    name: str

    def steps(self) -> Sequence[Step]: ...
    def processes(self) -> Sequence[int]: ...


@dataclass
class Torchrun:
    """A program under torchrun whose rank 0 prints a JSON line for each step."""

    name: str
    process: subprocess.Popen[str]
    marker: str
    _steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{") and "step" in (told := json.loads(line)) and "event" not in told:
                self._steps.append(Step(told["step"], time.time(), told["tokens"], told["loss"]))

    def steps(self) -> Sequence[Step]:
        return tuple(self._steps)

    def processes(self) -> Sequence[int]:
        return marked(self.marker)


@contextmanager
def torchrun(
    name: str,
    program: Sequence[str],
    *,
    ranks: int,
    environment: Mapping[str, str],
    python: str = sys.executable,
) -> Iterator[Torchrun]:
    """`program` on `ranks` processes, ended on leaving. `environment` holds the demo's marker, which finds them."""
    command = [
        python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        *program,
    ]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    side = Torchrun(name, process, f"{MARKER}={environment[MARKER]}")
    try:
        yield side
    finally:
        for pid in side.processes():
            signal_quietly(pid, signal.SIGKILL)
        process.wait()


def let_run(side: Side) -> None:
    for pid in side.processes():
        signal_quietly(pid, signal.SIGCONT)


def hold(side: Side) -> None:
    for pid in side.processes():
        signal_quietly(pid, signal.SIGSTOP)


def warm_up(side: Side) -> None:
    """Until the job of `side` has finished some steps. RuntimeError when it does not in time."""
    deadline = time.monotonic() + START_PATIENCE_S
    while len(side.steps()) < WARM_STEPS:
        if time.monotonic() > deadline or not side.processes():
            raise RuntimeError(f"the job under {side.name} finished no {WARM_STEPS} steps")
        time.sleep(1.0)


def step_s(side: Side) -> float:
    """Seconds of a step by the last ones of its warm-up."""
    ends = [step.ended_at for step in side.steps()][-WARM_STEPS:]
    return statistics.median(after - before for before, after in itertools.pairwise(ends))


def take_turns(sides: tuple[Side, Side], *, pairs: int, turn_s: float) -> list[tuple[Turn, Turn]]:
    """Both sides, held when this is called, run alternately, in the order a b, b a, a b …; both are held at the end."""
    taken: list[tuple[Turn, Turn]] = []
    for number in range(pairs):
        pair: dict[str, Turn] = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            began = time.time()
            let_run(side)
            time.sleep(turn_s)
            hold(side)
            pair[side.name] = Turn(side.name, began, time.time())
        taken.append((pair[sides[0].name], pair[sides[1].name]))
    return taken


def rate(turn: Turn, steps: Sequence[Step]) -> Rate:
    """Tokens/s from the first end of a step in `turn` to the last. ValueError with fewer than three steps in it."""
    inside = sorted(
        (step for step in steps if turn.began_at <= step.ended_at <= turn.ended_at),
        key=lambda step: step.number,
    )
    if len(inside) < 3:
        raise ValueError(f"{turn.side} ended {len(inside)} steps in a turn, too few for a rate: --turn")
    seconds = inside[-1].ended_at - inside[0].ended_at
    tokens = sum(step.tokens for step in inside[1:])
    return Rate(turn.side, len(inside) - 1, round(seconds, 4), tokens / seconds)
