"""The schedule of one step as its ranks ran it, and the bubble measured from it. Times are whole microseconds.

One pipeline is recorded: the ranks with tp, cp and dp 0. Times count from the first work of any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.lifecycle.said import LARGEST_STEP
from orchestrator.spec.sections import PipelineSchedule

SPANS_LIMIT = 8_192
"""Spans in one timeline: about 300 kB of JSON."""
RANKS_LIMIT = 1_024
TIMELINES_KEPT = 32
"""Timelines of a job in the store; the oldest give way."""


class Work(StrEnum):
    """What a rank computes. The two halves of a backward are told apart by the zero-bubble schedules alone."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BACKWARD_INPUT = "backward-input"
    BACKWARD_WEIGHT = "backward-weight"


class Span(NamedTuple):
    """One piece of work, as a JSON array of these five."""

    work: Work
    stage: int
    microbatch: int
    start_us: int
    end_us: int


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


Microseconds = Annotated[int, Field(ge=0, le=2**53)]


class Totals(Part):
    """Sums over the steps since the timeline before, this one included."""

    steps: Annotated[int, Field(ge=1)]
    busy_us: dict[Work, Microseconds]
    own_us: Microseconds
    """From the rank's first work to the end of its last, summed over the steps."""


class RankTimeline(Part):
    rank: Annotated[int, Field(ge=0)]
    start_us: Microseconds
    """Begin of the rank's first work."""
    end_us: Microseconds
    busy_us: dict[Work, Microseconds]
    spans: Annotated[list[Span], Field(max_length=SPANS_LIMIT)]
    """In the order in which they ran; the first ones when some are left out."""
    spans_left_out: Annotated[int, Field(ge=0)] = 0
    totals: Totals

    @property
    def busy_total_us(self) -> int:
        return sum(self.busy_us.values())

    @property
    def gaps_us(self) -> int:
        """Idle time between the rank's first and last work."""
        return max(0, self.end_us - self.start_us - self.busy_total_us)


class Timeline(Part):
    step: Annotated[int, Field(ge=1, le=LARGEST_STEP)]
    schedule: PipelineSchedule
    pp: Annotated[int, Field(ge=1)]
    microbatches: Annotated[int, Field(ge=1)]
    virtual_stages: Annotated[int, Field(ge=1)]
    clock_error_us: Microseconds | None
    """Largest error of a start or end against another rank's: 0 on one host, half a round trip between hosts. Null:
    the clocks of the hosts could not be compared, so ranks are drawn as if they had begun the step together."""
    window_us: Microseconds
    """From the first work of any rank to the end of the last."""
    bubble: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Measured: see `measured_bubble`."""
    ranks: Annotated[list[RankTimeline], Field(min_length=1, max_length=RANKS_LIMIT)]
    """In the order of the pipeline; evenly chosen ones when there are more than fit."""

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        count = sum(len(rank.spans) for rank in self.ranks)
        if count > SPANS_LIMIT:
            raise ValueError(f"{count} spans, at most {SPANS_LIMIT} are taken: leave some out (`bounded`)")
        return self


def window_us(ranks: Sequence[RankTimeline]) -> int:
    return max(rank.end_us for rank in ranks) - min(rank.start_us for rank in ranks)


def ideal_us(ranks: Sequence[RankTimeline]) -> float:
    """Time of the same work without idleness: the mean over ranks of the time they computed."""
    return sum(rank.busy_total_us for rank in ranks) / len(ranks)


def measured_bubble(ranks: Sequence[RankTimeline]) -> float:
    """Idle time of a rank over ideal time, mean over ranks; 0 when nothing was computed.

    A rank idles from the first work of any rank to the end of the last whenever it does not compute. So stages of
    unlike length count as idleness too; time between steps does not.
    """
    ideal = ideal_us(ranks)
    return max(0.0, window_us(ranks) / ideal - 1.0) if ideal else 0.0


def bounded(ranks: Sequence[RankTimeline], *, spans: int = SPANS_LIMIT) -> list[RankTimeline]:
    """At most RANKS_LIMIT of `ranks` with at most `spans` spans together, evenly chosen, first and last included.

    Ranks whose spans do not fit keep their sums; when not even two ranks fit whole, their first spans are kept.
    """
    chosen = [ranks[i] for i in _evenly(len(ranks), RANKS_LIMIT)]
    longest = max(len(rank.spans) for rank in chosen)
    if not longest:
        return chosen
    drawn = set(_evenly(len(chosen), max(2, spans // longest)))
    each = spans // len(drawn)
    return [_cut(rank, each if i in drawn else 0) for i, rank in enumerate(chosen)]


def _cut(rank: RankTimeline, spans: int) -> RankTimeline:
    left_out = max(0, len(rank.spans) - spans)
    if not left_out:
        return rank
    return rank.model_copy(
        update={"spans": rank.spans[:spans], "spans_left_out": rank.spans_left_out + left_out}
    )


def _evenly(count: int, at_most: int) -> list[int]:
    """At most `at_most` (two or more) of the indices below `count`, evenly spaced, both ends included."""
    if count <= at_most:
        return list(range(count))
    return [i * (count - 1) // (at_most - 1) for i in range(at_most)]
