"""Records when this rank computes which micro-batch of which stage, and reports one step in many as a timeline.

Every step is recorded: two readings of a clock a piece of work, less than a microsecond of the host's time each. The
sums are kept for every step. The whole record goes out for the second step of an attempt (the first one warms up) and
for one in `every` after that, gathered over one pipeline, so that what travels and what is stored is bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage

from actors.training.context import Reporter
from actors.training.parallel.clock_offset import HostClocks
from actors.training.parallel.mesh import RankMesh
from orchestrator.estimate.pipeline import bubble_of
from orchestrator.lifecycle.timeline import (
    RankTimeline,
    Span,
    Timeline,
    Totals,
    Work,
    bounded,
    measured_bubble,
    window_us,
)

LEAST_EVERY = 50
"""Steps between two timelines at least."""
TIMELINES_A_JOB = 1_000
"""Timelines of a whole job at most, one more for each attempt."""


class Clock(Protocol):
    """Marks moments at once and tells their times later, when reading them holds up nothing."""

    def anchor(self, *, exact: bool) -> None:
        """Begins a step. `exact`: its times will be compared with other ranks'."""

    def mark(self) -> Any: ...

    def read_us(self, mark: Any) -> int:
        """Monotonic time of the host, microseconds."""


class HostClock:
    """For work that is done when its call returns: a CPU."""

    def anchor(self, *, exact: bool) -> None:
        """The clock is the host's already."""

    def mark(self) -> int:
        return time.monotonic_ns()

    def read_us(self, mark: Any) -> int:
        return int(mark) // 1000


class DeviceClock:
    """For work that is queued on an accelerator: events on the current stream, laid onto the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._origin: Any = None
        self._origin_us = 0

    def anchor(self, *, exact: bool) -> None:
        # What is queued would run before the origin: an exact one waits for it, once in many steps.
        if exact:
            torch.accelerator.synchronize(self._device)
        self._origin = self.mark()
        self._origin_us = time.monotonic_ns() // 1000

    def mark(self) -> Any:
        event = torch.Event(self._device, enable_timing=True)
        event.record()
        return event

    def read_us(self, mark: Any) -> int:
        mark.synchronize()
        since_ms: float = self._origin.elapsed_time(mark)
        return self._origin_us + round(1000 * since_ms)


class Recorder:
    """The record of the newest step of this rank."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: list[tuple[Work, int, int, Any, Any]] = []

    def begin(self, *, exact: bool = False) -> None:
        """Begins a step and forgets the one before."""
        self._marks = []
        self._clock.anchor(exact=exact)

    def mark(self) -> Any:
        return self._clock.mark()

    def add(self, work: Work, stage: int, microbatch: int, started: Any) -> None:
        """A piece of work that began at the mark `started` and ends now."""
        self._marks.append((work, stage, microbatch, started, self._clock.mark()))

    def with_loss(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        """`loss` as part of the forward it follows: schedules compute it outside the stage."""

        def timed(output: Tensor, target: Tensor) -> Tensor:
            value = loss(output, target)
            if self._marks:
                self._marks[-1] = (*self._marks[-1][:4], self._clock.mark())
            return value

        return timed

    def spans(self) -> list[Span]:
        """What was computed since `begin`, in its order, in times of this host's clock."""
        read = self._clock.read_us
        return [
            Span(work, stage, micro, read(start), read(end)) for work, stage, micro, start, end in self._marks
        ]


def recorder_for(device: torch.device) -> Recorder:
    return Recorder(HostClock() if device.type == "cpu" else DeviceClock(device))


class RecordedStage(PipelineStage):
    """A stage that records its work; whatever it waits for is waited for outside these calls."""

    def __init__(self, *arguments: Any, recorder: Recorder, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._recorder = recorder

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **options: Any) -> Any:
        started = self._recorder.mark()
        output = super().forward_one_chunk(fwd_chunk_id, *arguments, **options)
        self._recorder.add(Work.FORWARD, self.stage_index, fwd_chunk_id, started)
        return output

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        started = self._recorder.mark()
        super().backward_one_chunk(
            bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
        )
        work = Work.BACKWARD if full_backward else Work.BACKWARD_INPUT
        self._recorder.add(work, self.stage_index, bwd_chunk_id, started)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **options: Any) -> None:
        started = self._recorder.mark()
        super().backward_weight_one_chunk(bwd_chunk_id, *arguments, **options)
        self._recorder.add(Work.BACKWARD_WEIGHT, self.stage_index, bwd_chunk_id, started)


class StepTimelines:
    """What becomes of the records of this rank: sums of every step, a timeline of one in many.

    `begin` before and `report` after each step; `report` is collective over the ranks of the pipeline that is recorded.
    """

    def __init__(self, recorder: Recorder, mesh: RankMesh, *, steps: int, every: int | None = None) -> None:
        """`steps` of the whole job, from which `every` follows when it is not given."""
        self._recorder = recorder
        self._plan = mesh.parallelism
        self._group = mesh.group("pp")
        self._reports = all(mesh.coordinates[axis] == 0 for axis in ("tp", "cp", "dp"))
        self._is_first = mesh.coordinates["pp"] == 0
        self._clocks = HostClocks(self._group)
        self._every = every or max(LEAST_EVERY, -(-steps // TIMELINES_A_JOB))
        self._begun = 0
        """Steps begun in this attempt."""
        self._due_step: int | None = None
        self._totals: Totals | None = None

    def begin(self, step: int) -> None:
        """Step `step`, 0-based, is about to be computed."""
        self._begun += 1
        due = self._reports and (self._begun == 2 or (step + 1) % self._every == 0)
        self._due_step = step + 1 if due else None
        self._recorder.begin(exact=due)

    def report(self, reporter: Reporter) -> None:
        """Adds up the step that has ended, and reports its timeline when it is due, on the first rank."""
        spans = self._recorder.spans() if self._reports else []
        if not spans:
            return
        self._totals = _added(self._totals, spans)
        if self._due_step is None:
            return
        timeline = self._gather(self._due_step, spans, self._totals)
        self._totals = None
        if timeline is not None:
            found = f"bubble {timeline.bubble:.1%} of ideal time, {bubble_of(self._plan):.1%} in theory"
            message = f"step {timeline.step}: {found if self._plan.pp > 1 else 'recorded; no pipeline'}"
            reporter.event("timeline", message, timeline.model_dump(mode="json"))

    def _gather(self, step: int, spans: list[Span], totals: Totals) -> Timeline | None:
        """The timeline of the whole pipeline on its first rank, None on the others."""
        offset = self._clocks.measure(begun_us=spans[0].start_us)
        mine = (dist.get_rank(), spans, totals, offset)
        size = dist.get_world_size(self._group)
        everybody: list[Any] | None = [None] * size if self._is_first else None
        if size > 1:
            dist.gather_object(mine, everybody, group=self._group, group_dst=0)
        elif everybody is not None:
            everybody = [mine]
        if everybody is None:
            return None
        errors = [offset.error_us for *_, offset in everybody]
        origin = min(spans[0].start_us - offset.offset_us for _, spans, _, offset in everybody)
        ranks = [
            _rank_timeline(rank, spans, totals, shift_us=origin + offset.offset_us)
            for rank, spans, totals, offset in everybody
        ]
        plan = self._plan
        return Timeline(
            step=step,
            schedule=plan.schedule,
            pp=plan.pp,
            microbatches=plan.microbatches,
            virtual_stages=plan.virtual_stages,
            clock_error_us=None if None in errors else max(e for e in errors if e is not None),
            window_us=window_us(ranks),
            bubble=measured_bubble(ranks),
            ranks=bounded(ranks),
        )


def _busy(spans: list[Span]) -> dict[Work, int]:
    busy: dict[Work, int] = {}
    for span in spans:
        busy[span.work] = busy.get(span.work, 0) + span.end_us - span.start_us
    return busy


def _added(before: Totals | None, spans: list[Span]) -> Totals:
    busy, own = _busy(spans), spans[-1].end_us - spans[0].start_us
    if before is None:
        return Totals(steps=1, busy_us=busy, own_us=own)
    works = before.busy_us.keys() | busy.keys()
    summed = {work: before.busy_us.get(work, 0) + busy.get(work, 0) for work in works}
    return Totals(steps=before.steps + 1, busy_us=summed, own_us=before.own_us + own)


def _rank_timeline(rank: int, spans: list[Span], totals: Totals, *, shift_us: int) -> RankTimeline:
    moved = [s._replace(start_us=s.start_us - shift_us, end_us=s.end_us - shift_us) for s in spans]
    return RankTimeline(
        rank=rank,
        start_us=moved[0].start_us,
        end_us=moved[-1].end_us,
        busy_us=_busy(moved),
        spans=moved,
        totals=totals,
    )
