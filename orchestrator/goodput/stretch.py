"""Stretches of finished steps: sums of up to 64 steps of one attempt, so that a ledger of a million steps reads some
thousand rows. Pure; times are whole microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.goodput.classes import Spent

STEPS = 64
"""Largest number of records in a stretch."""
LARGEST_S = 1e9
"""Of what a rank program says of one step (30 years): beyond it is cut, so that sums fit their columns."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Finished steps of one attempt, one after the other with growing numbers."""

    attempt: int
    first_id: int
    """Of the job's step records, which count 1, 2, 3 ...: the stretch is all from `first_id` to `last_id`."""
    last_id: int
    first_step: int
    last_step: int
    first_end_us: int
    """When the first had finished, UTC since 1970."""
    first_us: int
    """How long the first took."""
    end_us: int
    """When the last had finished."""
    steps_us: int
    """How long all of them took."""
    communication_us: int = 0
    """Of that, what rank 0 waited for other ranks, pipeline apart."""
    bubble_us: int = 0
    data_us: int = 0
    checkpoint_us: int = 0
    waits_known_us: int = 0
    """Of `steps_us`, time of steps in which waiting for other ranks was measured."""
    phases_known_us: int = 0
    """Of `steps_us`, time of steps in which phases (data, checkpoint) were measured."""

    @property
    def count(self) -> int:
        return self.last_id - self.first_id + 1

    @property
    def usual_us(self) -> int:
        """Mean time of a step."""
        return self.steps_us // self.count

    def waited_us(self, spent: Spent) -> int:
        return {
            Spent.EXPOSED_COMMUNICATION: self.communication_us,
            Spent.BUBBLE: self.bubble_us,
            Spent.DATA_WAIT: self.data_us,
            Spent.CHECKPOINT_STALL: self.checkpoint_us,
        }[spent]

    def known(self, spent: Spent) -> float:
        """Share of the time, 0 to 1, of steps in which this wait was measured."""
        by_rank = spent in (Spent.EXPOSED_COMMUNICATION, Spent.BUBBLE)
        known_us = self.waits_known_us if by_rank else self.phases_known_us
        return known_us / self.steps_us if self.steps_us else 0.0


def one_step(
    number: int, attempt: int, step: int, end_us: int, took_s: float | None, cost: Mapping[str, Any] | None
) -> Stretch:
    """Step record `number`, with what it cost (`lifecycle.cost.step_cost`)."""
    took_us = _us(took_s or 0.0)
    phases, waits = (cost or {}).get("phases_s"), (cost or {}).get("exposed_s")
    return Stretch(
        attempt=attempt,
        first_id=number,
        last_id=number,
        first_step=step,
        last_step=step,
        first_end_us=end_us,
        first_us=took_us,
        end_us=end_us,
        steps_us=took_us,
        communication_us=sum(_us(seconds) for axis, seconds in (waits or {}).items() if axis != "pp"),
        bubble_us=_us((waits or {}).get("pp", 0.0)),
        data_us=_us((phases or {}).get("data", 0.0)),
        checkpoint_us=_us((phases or {}).get("checkpoint", 0.0)),
        waits_known_us=took_us if waits is not None else 0,
        phases_known_us=took_us if phases is not None else 0,
    )


def _us(seconds: float) -> int:
    return round(min(max(seconds, 0.0), LARGEST_S) * 1e6)


SUMS = (
    "steps_us",
    "communication_us",
    "bubble_us",
    "data_us",
    "checkpoint_us",
    "waits_known_us",
    "phases_known_us",
)


def joined(before: Stretch, after: Stretch) -> Stretch | None:
    """Both as one; None when `after` does not go on where `before` ends, or there are too many steps in them."""
    goes_on = before.attempt == after.attempt and before.last_step < after.first_step
    if not goes_on or before.last_id + 1 != after.first_id or before.count + after.count > STEPS:
        return None
    sums = {name: getattr(before, name) + getattr(after, name) for name in SUMS}
    return Stretch(
        attempt=before.attempt,
        first_id=before.first_id,
        last_id=after.last_id,
        first_step=before.first_step,
        last_step=after.last_step,
        first_end_us=before.first_end_us,
        first_us=before.first_us,
        end_us=max(before.end_us, after.end_us),
        **sums,
    )


def stretches(steps: Iterable[Stretch], before: Stretch | None = None) -> list[Stretch]:
    """Steps, in the order of their records, as few stretches; the first goes on from `before` where it can."""
    found = [] if before is None else [before]
    for step in steps:
        longer = joined(found[-1], step) if found else None
        if longer is None:
            found.append(step)
        else:
            found[-1] = longer
    return found


def lost_from(found: Sequence[Stretch], kept: int | None) -> list[float]:
    """For each stretch the step from which on nothing is left of it.

    Training went back below a step when a later record has that number or a smaller one. So the order of records
    tells, and no clock. `kept`: the newest step whose result lives on; None: that of all.
    """
    bound = float("inf") if kept is None else kept + 1
    bounds = []
    for stretch in reversed(found):
        bounds.append(bound)
        bound = min(bound, stretch.first_step)
    return bounds[::-1]
