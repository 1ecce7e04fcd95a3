"""What must hold after every run, whatever struck it. Each function gives sentences on what does not, with evidence."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from actors.checkpoint import manifest
from actors.checkpoint.layout import MANIFEST_NAME, newest_first
from actors.processes import alive
from tests.chaos import weights
from tests.chaos.run import Observed
from tests.chaos.scenario import STEPS

LEDGER = 1e-3
"""The classes of the ledger add up to 100.0 % +- 0.1."""
RELATIVE = 1e-9
"""Of losses in fp64, where replicas were dropped."""


@dataclass(frozen=True)
class Undisturbed:
    """What a run gave that nothing struck."""

    losses: Mapping[int, float | None]
    """By step."""
    weights: Mapping[str, Any]
    """Of the last checkpoint, by name."""


def violations(seen: Observed, undisturbed: Undisturbed | None) -> list[str]:
    """All of them, each with the name of its invariant before it. The first run of a job has nothing to be held
    against."""
    if not seen.ended:
        job = seen.job
        return [f"terminal: after {seen.seconds:.0f} s the job is {job.state} ({job.reason}) at step {job.step}: "
                f"{job.message[:200]}"]  # fmt: skip
    found = [f"{check.__name__}: {what}" for check in CHECKS for what in check(seen)]
    if undisturbed is not None and seen.job.state == "succeeded":
        found += [f"losses: {what}" for what in losses(seen, undisturbed)]
        found += [f"weights: {what}" for what in same_weights(seen, undisturbed)]
    return found


def status(seen: Observed) -> Iterator[str]:
    """Every scenario leaves what a repair needs, so the job succeeds, and then every step was trained."""
    job = seen.job
    if job.state != "succeeded":
        yield f"{job.state} ({job.reason}) at step {job.step}: {job.message[:300]}"
    elif job.step != STEPS:
        yield f"succeeded at step {job.step} of {STEPS}"
    begun = seen.witness.steps(int(job.spec["parallelism"]["microbatches"]))
    if job.state == "succeeded" and begun < STEPS:
        yield f"succeeded, and rank 0 began {begun} steps of {STEPS}"


def history(seen: Observed) -> Iterator[str]:
    """Events are numbered without a gap, and those of a supervisor come in its order; so do steps."""
    for name, rows in (("events", seen.events), ("metrics", seen.metrics)):
        if [row.id for row in rows] != list(range(1, len(rows) + 1)):
            yield f"{name} have the numbers {[row.id for row in rows]}"
        for incarnation in {row.incarnation for row in rows} - {None}:
            told = [row.seq for row in rows if row.incarnation == incarnation and row.seq is not None]
            if told != sorted(set(told)):
                yield f"{name} of supervisor {incarnation} come in the order {told}"
            missing = sorted(set(range(1, max(told) + 1)) - set(told))
            # Schedules are kept apart, in a table of their own.
            if missing and (name == "metrics" or not seen.timelines):
                yield f"{name} {missing} of supervisor {incarnation} are missing"


def story(seen: Observed) -> Iterator[str]:
    """Events tell one life: submitted, placed once for each placement, attempts one after the other, an end."""
    kinds = Counter(event.kind for event in seen.events)
    if seen.events[0].kind != "submitted" or kinds["submitted"] != 1:
        yield f"the first event is {seen.events[0].kind}, submitted comes {kinds['submitted']} times"
    if kinds["placed"] != len(seen.placements):
        yield f"{kinds['placed']} events `placed`, {len(seen.placements)} placements"
    begun = [event.attempt for event in seen.events if event.kind == "attempt-started"]
    if begun != sorted(set(begun), key=lambda number: number or 0):
        yield f"attempts begin in the order {begun}"
    if begun != [attempt.number for attempt in seen.attempts]:
        yield f"events begin the attempts {begun}, SQL has {[attempt.number for attempt in seen.attempts]}"
    ends = [event for event in seen.events if event.kind == "finished"]
    if not ends or ends[-1].data.get("outcome") != seen.job.state:
        yield f"the job {seen.job.state}, its last end is {ends[-1].data if ends else 'not told'}"
    if ends and begun and max(e.id for e in seen.events if e.kind == "attempt-started") > ends[-1].id:
        yield "an attempt begins after the end"


def attempts_closed(seen: Observed) -> Iterator[str]:
    """Every attempt has an end; the last one is how the job ended; one begins when the one before has ended."""
    for attempt in seen.attempts:
        if attempt.ended_at is None or attempt.outcome is None:
            yield f"attempt {attempt.number} has no end"
    if seen.attempts and seen.attempts[-1].outcome != seen.job.state:
        yield f"the job {seen.job.state}, its last attempt {seen.attempts[-1].outcome}"


def no_double_run(seen: Observed) -> Iterator[str]:
    """No two attempts trained at the same time, by what the ranks themselves wrote; and no two placements held."""
    for (_, end, one), (begin, _, other) in itertools.pairwise(seen.witness.gangs()):
        if end >= begin:
            ranks = {one.rank for one in seen.witness.passes if one.at >= begin and one.gang != other}
            yield (
                f"two gangs trained at once: that of port {one} until {end:.3f} (ranks {sorted(ranks)} at the end), "
                f"that of port {other} from {begin:.3f}, {end - begin:.2f} s together"
            )
    for last, after in itertools.pairwise(seen.placements):
        if last.released_at is None or last.released_at > after.placed_at:
            yield f"placement {after.incarnation} is of {after.placed_at}, the one before ended at {last.released_at}"


def no_orphan(seen: Observed) -> Iterator[str]:
    if living := sorted(pid for pid in seen.witness.pids() if alive(pid)):
        yield f"ranks {living} live on"
    if seen.left:
        yield f"processes are left: {seen.left}"


def no_slot_leaked(seen: Observed) -> Iterator[str]:
    yield from seen.unfree
    for placement in seen.placements:
        if placement.released_at is None:
            yield f"placement {placement.incarnation} was never released"


def checkpoints(seen: Observed) -> Iterator[str]:
    """Nothing half-written is left, what is there is whole, the last step too; none but damaged ones was skipped."""
    names = sorted(path.name for path in seen.checkpoints.iterdir()) if seen.checkpoints.exists() else []
    if unfinished := [name for name in names if name.startswith(".")]:
        yield f"unfinished: {unfinished}"
    committed = newest_first(names)
    for name in committed:
        if name not in seen.corrupted:
            yield from _damage(seen, name)
    if seen.job.state == "succeeded" and not any(name.startswith(f"step-{STEPS:08d}") for name in committed):
        yield f"none of step {STEPS}: {names}"
    for event in seen.events:
        if event.kind == "checkpoint-skipped" and event.data.get("name") not in seen.corrupted:
            yield f"skipped though nothing was done to it: {event.message}"


def _damage(seen: Observed, name: str) -> Iterator[str]:
    directory = seen.checkpoints / name
    try:
        described = manifest.read(directory, MANIFEST_NAME)
    except manifest.ManifestError as error:
        yield f"{name}: {error}"
        return
    for file, record in described.files.items():
        if why := manifest.check_file(directory, file, record):
            yield f"{name}: {why}"


def ledger(seen: Observed) -> Iterator[str]:
    """The classes add up to the whole, and what was held to what the placements say."""
    goodput = seen.goodput
    total = sum(seconds or 0.0 for seconds in goodput.gpu_seconds.values())
    if abs(total - goodput.total_gpu_seconds) > LEDGER * goodput.total_gpu_seconds:
        yield f"classes add up to {total:.3f} of {goodput.total_gpu_seconds:.3f} GPU-seconds: {goodput.gpu_seconds}"
    if negative := {name: seconds for name, seconds in goodput.gpu_seconds.items() if (seconds or 0.0) < 0}:
        yield f"less than nothing: {negative}"
    if any(placement.revision for placement in seen.placements):
        return  # a placement that was changed held different slots at different times
    held = sum(
        (placement.released_at - placement.placed_at).total_seconds() * len(placement.slots)
        for placement in seen.placements
        if placement.released_at is not None
    )
    if abs(held - goodput.held_gpu_seconds) > LEDGER * held:
        yield f"held {goodput.held_gpu_seconds:.3f} GPU-seconds, {held:.3f} by its placements"


def resharded(seen: Observed) -> bool:
    """Whether replicas were dropped on the way."""
    return any(event.data.get("rung") == "fewer-replicas" for event in seen.events)


def losses(seen: Observed, undisturbed: Undisturbed) -> Iterator[str]:
    """Of every step, however often it was trained."""
    allowed = RELATIVE if resharded(seen) else 0.0
    for row in seen.metrics:
        expected = undisturbed.losses.get(row.step)
        if row.loss is None or expected is None or abs(row.loss - expected) > allowed * abs(expected):
            yield f"step {row.step} of attempt {row.attempt}: {row.loss!r}, undisturbed {expected!r}"


def same_weights(seen: Observed, undisturbed: Undisturbed) -> Iterator[str]:
    final = [
        n
        for n in newest_first(p.name for p in seen.checkpoints.iterdir())
        if n.startswith(f"step-{STEPS:08d}")
    ]
    if final:
        found = weights.read(seen.checkpoints / final[0])
        if differing := weights.differing(found, dict(undisturbed.weights), exact=not resharded(seen)):
            yield f"{len(differing)} of {len(found)} differ: {differing[:5]}"


CHECKS: tuple[Callable[[Observed], Iterator[str]], ...] = (
    status,
    history,
    story,
    attempts_closed,
    no_double_run,
    no_orphan,
    no_slot_leaked,
    checkpoints,
    ledger,
)
