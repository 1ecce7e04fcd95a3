"""What monitoring costs a job: tokens/s of steps that are counted, timed and watched over those of steps that are not.

Ranks of one gang build the job's engine twice: once as it is, once without the meter (traffic counted in the process
groups, time by phase, memory asked) and without the recorder of the pipeline's timeline. They take turns of some steps
each, so both sides share processes, caches and the machine's mood. On the measured side every rank leaves what its
steps were made of in its ring. Once a second and at the end of a turn rank 0 reads the rings and feeds the detector of
stragglers while the others wait for it; agent and supervisor do that beside the ranks, so it costs most here. ZeRO 3
over two ranks with micro-batches: of the plans that two cores run well, the one with the most collectives in a step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import yaml
from report import Verdict, conclude

from actors.step_reader import StepReader
from actors.step_ring import StepRing, ring_path
from actors.training import engine as engines
from actors.training.engine import Engine
from actors.training.local_gang import run_ranks
from actors.training.metrics.traffic import Traffic
from actors.training.parallel import execution
from actors.training.parallel.mesh import set_default_timeout
from actors.training.parallel.timeline import Span
from orchestrator.health.live import LiveHealth
from orchestrator.placement.mesh import Mesh
from orchestrator.spec import JobSpec
from orchestrator.spec.parse import parse_spec

BAR = 0.99
JOB = Path(__file__).resolve().parent.parent / "examples" / "demo.yaml"
PLAN = {"dp": 2, "zero": 3, "microbatches": 4}
DEADLINE_S = 3600.0
SMALL = {"pairs": 2, "steps": 2, "warm_up": 1}


LOOK_EVERY_S = 1.0
"""As `STEPS_EVERY_S` of the node agent."""


class NoMeter:
    """`StepMeter` that measures nothing: no hook, no clock, nothing in the process groups."""

    measured = None

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        yield

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        yield

    def sent_so_far(self) -> list[float]:
        return []

    def sent_by_all(self, totals: Sequence[float]) -> None:
        pass

    def record(self, step_time_s: float) -> dict[str, Any]:
        return {}


class NoRecorder:
    """`Recorder` that records nothing; for plans without a pipeline."""

    def begin(self, *, exact: bool = False) -> None:
        pass

    def mark(self) -> None:
        pass

    def add(self, *_: Any) -> None:
        pass

    def spans(self) -> list[Span]:
        return []


def job(steps: int) -> JobSpec:
    """The demo's job under the plan, with as many steps as both sides take together."""
    document = yaml.safe_load(JOB.read_text())
    document["parallelism"] = PLAN
    document["training"] |= {"steps": steps, "eval_every": 0}
    # There may be fewer steps than the demo warms up for.
    document["training"]["optimizer"] |= {"warmup_steps": 0}
    del document["placement"]
    return parse_spec(document)


def unmeasured(spec: JobSpec, rank: int) -> Engine:
    with (
        mock.patch.object(engines, "StepMeter", NoMeter),
        mock.patch.object(execution, "recorder_for", return_value=NoRecorder()),
    ):
        return Engine(spec, torch.device("cpu"), rank=rank)


class Watch:
    """What agent and supervisor do with the rings of all ranks."""

    def __init__(self, spec: JobSpec, pulses: Path) -> None:
        ranks = range(spec.parallelism.world_size)
        self._pulses = {rank: pulse_of(pulses, rank) for rank in ranks}
        self._reader = StepReader()
        self.health = LiveHealth(1, Mesh.of(spec.parallelism), [f"n{rank}" for rank in ranks])
        self._looked_at = time.monotonic()

    def look(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        if self.health.take(self._reader.look(self._pulses)):
            self.health.findings()
            self.health.heat()


def pulse_of(folder: Path, rank: int) -> Path:
    return folder / f"1-{rank}.pulse"


def turn(engine: Engine, first: int, steps: int, ring: StepRing, watch: Watch | None) -> tuple[float, float]:
    """(seconds, last loss) of some steps, every one with its record, as the training loop takes them."""
    dist.barrier()
    began = before = time.perf_counter()
    for step in range(first, first + steps):
        loss = engine.train_step(step, stop=False).loss
        now = time.perf_counter()
        engine.meter.record(now - before)
        if engine.meter.measured is not None:
            ring.write(step + 1, engine.meter.measured)
            if watch is not None:
                watch.look(at_once=step == first + steps - 1)
        before = now
    return time.perf_counter() - began, loss


def measure(*, pairs: int, steps: int, warm_up: int) -> list[dict[str, float]]:
    """Seconds of the turns of each pair, measured and plain; who begins changes from pair to pair."""
    spec = job(warm_up + pairs * steps)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(spec, Path(folder), pairs=pairs, steps=steps, warm_up=warm_up)


def _measure(spec: JobSpec, folder: Path, *, pairs: int, steps: int, warm_up: int) -> list[dict[str, float]]:
    def program(rank: int, store: Any) -> list[dict[str, float]]:
        timeout = timedelta(seconds=DEADLINE_S)
        set_default_timeout(timeout)
        world = spec.parallelism.world_size
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=world, timeout=timeout)
        sides = {
            "measured": Engine(spec, torch.device("cpu"), rank=rank),
            "plain": unmeasured(spec, rank),
        }
        check(sides, warm_up)
        ring = StepRing(ring_path(pulse_of(folder, rank)))
        watch = Watch(spec, folder) if rank == 0 else None
        found = []
        for pair in range(pairs):
            order = ("measured", "plain") if pair % 2 == 0 else ("plain", "measured")
            first = warm_up + pair * steps
            told = {side: turn(sides[side], first, steps, ring, watch) for side in order}
            if told["measured"][1] != told["plain"][1]:
                raise RuntimeError(f"the sides train differently: losses {told} in pair {pair}")
            found.append({f"{side}_s": seconds for side, (seconds, _) in told.items()})
        dist.barrier()
        if watch is not None and pairs * steps > 20 and watch.health.clock is None:
            raise RuntimeError("the watch has judged nothing")
        return found

    return list(run_ranks(spec.parallelism.world_size, program, deadline_s=DEADLINE_S)[0])


def check(sides: dict[str, Engine], warm_up: int) -> None:
    """The first steps, which do not count; one side has counted in them and the other has nothing to count with."""
    for engine in sides.values():
        for step in range(warm_up):
            engine.train_step(step, stop=False)
    counted = sides["measured"].meter
    if not isinstance(getattr(counted, "traffic", None), Traffic) or not counted.record(1.0)["sent_bytes"]:
        raise RuntimeError("the measured side counted nothing")
    if not isinstance(sides["plain"].meter, NoMeter):
        raise RuntimeError("the plain side has a meter")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10, help="steps of each turn")
    parser.add_argument("--warm-up", type=int, default=5, help="first steps of both sides that do not count")
    parser.add_argument(
        "--small", action="store_true", help="two short pairs and no verdict, to try the script"
    )
    options = parser.parse_args()
    setting = {"pairs": options.pairs, "steps": options.steps, "warm_up": options.warm_up}
    if min(setting.values()) < 1:
        parser.error("--pairs, --steps and --warm-up must be 1 or more")
    if options.small:
        setting = SMALL
    samples = measure(**setting)
    ratios = [pair["plain_s"] / pair["measured_s"] for pair in samples]
    for pair, ratio in zip(samples, ratios, strict=True):
        print(f"measured {pair['measured_s']:.3f} s, plain {pair['plain_s']:.3f} s, ratio {ratio:.3f}")
    if options.small:
        return 0
    verdict = Verdict("measuring", "ratio", statistics.median(ratios), BAR)
    spec = job(options.steps).model_dump(mode="json")
    return conclude(verdict, setting={"job": spec, **setting}, samples=samples)


if __name__ == "__main__":
    sys.exit(main())
