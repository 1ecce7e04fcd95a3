"""Faults put into recorded step times: what a known slow rank, link or node would have made of a healthy run.

The noise is real: a stretch of a long recording as it is; a short one (44 and 32 measured steps) cut into pieces of
8 that are put together at random (moving-block bootstrap, Kunsch 1989, so that what lasts in the noise lasts here
too). The fault is either *full* (a slow rank lengthens every rank's step, and all others wait for it) or *bare*
(only the slow rank's own columns change).

Two sets that share no recording: what the detector's constants were chosen on, and what is only ever scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np

from orchestrator.health.layout import PHASES, Floats, Layout
from orchestrator.health.recording import Recording, read_recording

FWD, BWD, RECV, SEND, COLL, GC, WALL = range(len(PHASES))
FOLDER = Path("straggler") / "steptimes"
BLOCK = 8
FEWEST, MOST = 80, 144
"""Steps of a run that is put together."""


class Set(StrEnum):
    DEVELOPMENT = "development"
    HELD_OUT = "held-out"


@dataclass(frozen=True, slots=True)
class Run:
    """A healthy run: one array (ranks, columns) a step."""

    name: str
    layout: Layout
    steps: list[int]
    seconds: Floats
    """(steps, ranks, columns)"""


@dataclass(frozen=True, slots=True)
class Fault:
    """What was put in. `ranks` empty: nothing that may be blamed."""

    kind: str
    ranks: frozenset[int]
    factor: float
    first: int
    last: int
    """Indices of the first and last step touched."""
    any_of: bool = False
    """One of the ranks is enough (the two ends of a link)."""


@dataclass(frozen=True, slots=True)
class Case:
    run: Run
    fault: Fault


def healthy_runs(data: Path, which: Set) -> list[Run]:
    """data: the folder of public inputs.

    Development: trace AR without the replica of the slow rank 0, and the first half of PAI job 1. Held out: trace
    ST, where nobody is slow, and the second half of PAI job 1 without the stretch in which worker 6 is slow
    (records 1801 to 1951).
    """
    if which is Set.DEVELOPMENT:
        pai = _run("pai", data, "pai_job1_per_rank_step.csv")
        return [
            _without_replica(_run("ar", data, "bytedance_AR_per_rank_step.csv"), 0),
            _cut(pai, lambda s: s < 1500),
        ]
    pai = _run("pai", data, "pai_job1_per_rank_step.csv")
    late = _cut(pai, lambda s: s >= 1500 and not 1801 <= s <= 1951)
    return [_run("st", data, "bytedance_ST_per_rank_step.csv"), late]


def _run(name: str, data: Path, file: str) -> Run:
    recording: Recording = read_recording(data / FOLDER / file)
    steps, seconds = zip(*recording.by_step(), strict=True)
    return Run(name, recording.layout, list(steps), np.array(seconds))


def _cut(run: Run, keep: Callable[[int], bool]) -> Run:
    kept = [i for i, step in enumerate(run.steps) if keep(step)]
    return replace(run, steps=[run.steps[i] for i in kept], seconds=run.seconds[kept])


def _without_replica(run: Run, replica: int) -> Run:
    """The other replicas waited for it in collectives; that waiting is taken out of their steps as well."""
    keep = [i for i, r in enumerate(run.layout.replica) if r != replica]
    seconds = run.seconds[:, keep].copy()
    old = run.layout
    layout = Layout.of(
        tuple(old.ranks[i] for i in keep),
        stage={old.ranks[i]: old.stage[i] for i in keep},
        replica={old.ranks[i]: old.replica[i] for i in keep},
    )
    for group in layout.groups:
        waited = np.min(seconds[:, group, COLL], axis=1, keepdims=True)
        spare = waited - np.minimum(waited, 0.33)
        seconds[:, group, COLL] -= spare
        seconds[:, group, WALL] -= spare
    return Run(run.name, layout, run.steps, seconds)


def stretch_of(run: Run, random: np.random.Generator) -> Run:
    """A stretch of a long run as it was; blocks of a short one, put together and numbered on and on."""
    if len(run.steps) >= FEWEST:
        length = int(random.integers(FEWEST, len(run.steps) + 1))
        start = int(random.integers(0, len(run.steps) - length + 1))
        chosen = slice(start, start + length)
        return replace(run, steps=run.steps[chosen], seconds=run.seconds[chosen].copy())
    return _put_together(run, random)


def _put_together(run: Run, random: np.random.Generator) -> Run:
    count = int(random.integers(FEWEST, MOST + 1))
    stride = int(np.median(np.diff(run.steps)))
    chosen: list[int] = []
    while len(chosen) < count:
        start = int(random.integers(0, len(run.steps) - BLOCK + 1))
        chosen += range(start, start + BLOCK)
    seconds = run.seconds[chosen[:count]].copy()
    return replace(run, steps=[1 + stride * i for i in range(count)], seconds=seconds)


def cases(runs: list[Run], count: int, seed: int) -> list[Case]:
    """`count` runs with one fault each, of all kinds in turn, and a third as many without any that may be blamed."""
    random = np.random.default_rng(seed)
    found = []
    for i in range(count):
        run = stretch_of(runs[i % len(runs)], random)
        kinds = FAULTS if run.layout.phased else RANK_FAULTS
        found.append(kinds[(i // len(runs)) % len(kinds)](run, random))
    for i in range(count // 3):
        run = stretch_of(runs[i % len(runs)], random)
        harmless = HARMLESS if run.layout.phased else HARMLESS_TO_RANKS
        found.append(harmless[(i // len(runs)) % len(harmless)](run, random))
    return found


def longer(run: Run, place: int, extra: Floats, *, full: bool, column: int | None = None) -> Run:
    """One rank takes `extra` seconds more in each step, (steps,). column: where they show; None outside all
    columns."""
    seconds = run.seconds.copy()
    if not run.layout.phased:
        seconds[:, place, 0] += extra
        return replace(run, seconds=seconds)
    if column is None:
        full = True
    elif column == FWD:
        part = seconds[:, place, FWD] / (seconds[:, place, FWD] + seconds[:, place, BWD])
        seconds[:, place, FWD] += extra * part
        seconds[:, place, BWD] += extra * (1 - part)
    else:
        seconds[:, place, column] += extra
    if full:
        seconds[:, :, WALL] += extra[:, None]
        for other in range(len(run.layout)):
            if other == place:
                continue
            waits = RECV if run.layout.replica[other] == run.layout.replica[place] else COLL
            seconds[:, other, waits] += extra
    return replace(run, seconds=seconds)


def _computed(run: Run, place: int) -> Floats:
    seconds = run.seconds[:, place]
    return seconds[:, FWD] + seconds[:, BWD] if run.layout.phased else seconds[:, 0]


def _stretch(run: Run, random: np.random.Generator, fewest: int = 24) -> tuple[int, int]:
    """First and last index of a stretch that begins after the first 16 steps."""
    count = len(run.steps)
    first = int(random.integers(16, count - fewest))
    return first, int(random.integers(first + fewest - 1, count))


def _mask(run: Run, first: int, last: int, every: int = 1) -> Floats:
    index = np.arange(len(run.steps))
    return ((index >= first) & (index <= last) & ((index - first) % every == 0)).astype(np.float64)


def _rank_fault(kind: str, factors: tuple[float, ...]) -> Callable[[Run, np.random.Generator], Case]:
    def make(run: Run, random: np.random.Generator) -> Case:
        place = int(random.integers(len(run.layout)))
        factor = float(random.choice(factors))
        last = len(run.steps) - 1
        first, end = {"constant": (0, last), "onset": (_stretch(run, random)[0], last)}.get(
            kind, _stretch(run, random)
        )
        every = int(random.choice([4, 8, 8, 12])) if kind == "periodic" else 1
        if kind == "periodic":
            first, end = int(random.integers(0, 16)), last
        extra = (factor - 1) * _computed(run, place) * _mask(run, first, end, every)
        slow = longer(run, place, extra, full=bool(random.integers(2)), column=FWD)
        return Case(slow, Fault(kind, frozenset({run.layout.ranks[place]}), factor, first, end))

    return make


def data_loader(run: Run, random: np.random.Generator) -> Case:
    place = int(random.integers(len(run.layout)))
    factor = float(random.choice([1.25, 1.5]))
    first, last = _stretch(run, random)
    extra = (factor - 1) * _computed(run, place) * _mask(run, first, last)
    slow = longer(run, place, extra, full=True)
    return Case(slow, Fault("data_loader", frozenset({run.layout.ranks[place]}), factor, first, last))


def link(run: Run, random: np.random.Generator) -> Case:
    """A pair of neighbours moves its data more slowly; the rest of its pipeline waits behind, the others in
    collectives."""
    a, b = run.layout.pairs[int(random.integers(len(run.layout.pairs)))]
    factor = float(random.choice([1.25, 1.5]))
    first, last = _stretch(run, random)
    extra = (factor - 1) * _computed(run, a) * _mask(run, first, last)
    seconds = run.seconds.copy()
    seconds[:, a, SEND] += extra
    seconds[:, b, RECV] += extra
    if random.integers(2):
        seconds[:, :, WALL] += extra[:, None]
        for other in set(range(len(run.layout))) - {a, b}:
            same = run.layout.replica[other] == run.layout.replica[a]
            behind = same and run.layout.stage[other] > run.layout.stage[b]
            seconds[:, other, RECV if behind else SEND if same else COLL] += extra
    ends = frozenset({run.layout.ranks[a], run.layout.ranks[b]})
    return Case(replace(run, seconds=seconds), Fault("link", ends, factor, first, last, any_of=True))


def node(run: Run, random: np.random.Generator) -> Case:
    """Two ranks of one stage on one named node, and no others on it."""
    group = run.layout.groups[int(random.integers(len(run.layout.groups)))]
    places = sorted(int(p) for p in group[: max(1, min(2, len(group) - 1))])
    names = {rank: f"n{i}" for i, rank in enumerate(run.layout.ranks)}
    names |= {run.layout.ranks[p]: "slow" for p in places}
    old = run.layout
    layout = Layout.of(
        old.ranks,
        stage=dict(zip(old.ranks, old.stage, strict=True)),
        replica=dict(zip(old.ranks, old.replica, strict=True)),
        node=names,
        columns=old.columns,
    )
    factor = float(random.choice([1.25, 1.5]))
    first, last = _stretch(run, random)
    slow = replace(run, layout=layout)
    for place in places:
        extra = (factor - 1) * _computed(run, place) * _mask(run, first, last)
        slow = longer(slow, place, extra, full=False, column=FWD)
    return Case(slow, Fault("node", frozenset(old.ranks[p] for p in places), factor, first, last))


def healthy(run: Run, random: np.random.Generator) -> Case:
    return Case(run, _nothing("healthy", run))


def spike(run: Run, random: np.random.Generator) -> Case:
    """One step of one rank takes five to thirty times as long."""
    at = int(random.integers(16, len(run.steps)))
    place = int(random.integers(len(run.layout)))
    extra = float(random.uniform(4, 29)) * _computed(run, place) * _mask(run, at, at)
    return Case(longer(run, place, extra, full=True, column=FWD), _nothing("spike", run))


def slowdown(run: Run, random: np.random.Generator) -> Case:
    """All ranks compute 30 % longer from some step on, as with longer sequences or a power cap."""
    first, last = _stretch(run, random)
    seconds = run.seconds.copy()
    seconds[first : last + 1] *= 1.3
    return Case(replace(run, seconds=seconds), _nothing("slowdown", run))


def sequences(run: Run, random: np.random.Generator) -> Case:
    """In every third step some replica has 40 % more work in all of its stages."""
    slow = run
    for at in range(0, len(run.steps), 3):
        replica = int(random.choice(sorted(set(run.layout.replica))))
        for place in (i for i, r in enumerate(run.layout.replica) if r == replica):
            extra = 0.4 * _computed(run, place) * _mask(run, at, at)
            slow = longer(slow, place, extra, full=False, column=FWD)
    return Case(slow, _nothing("sequences", run))


def long_stage(run: Run, random: np.random.Generator) -> Case:
    """One stage has 30 % more work on every replica."""
    stage = int(random.choice(sorted(set(run.layout.stage))))
    slow = run
    for place in (i for i, s in enumerate(run.layout.stage) if s == stage):
        extra = 0.3 * _computed(run, place)
        slow = longer(slow, place, extra, full=False, column=FWD)
    return Case(slow, _nothing("long_stage", run))


def _nothing(kind: str, run: Run) -> Fault:
    return Fault(kind, frozenset(), 1.0, 0, len(run.steps) - 1)


ALL = (1.10, 1.25, 1.5)
RANK_FAULTS = (
    _rank_fault("constant", ALL),
    _rank_fault("onset", ALL),
    _rank_fault("transient", ALL),
    _rank_fault("periodic", (1.4,)),
)
FAULTS = (*RANK_FAULTS, data_loader, link, node)
HARMLESS_TO_RANKS = (healthy, spike, slowdown)
HARMLESS = (*HARMLESS_TO_RANKS, sequences, long_stage)
