"""B4: the measured bubble of real ranks whose stages sleep is that of the literature. Sleeping costs no CPU."""

from __future__ import annotations

import itertools
from statistics import median
from typing import Any

import pytest
from sleeping_pipeline import run_sleeping

from orchestrator.estimate.pipeline import bubble_of
from orchestrator.estimate.stages import stages_of
from orchestrator.lifecycle.timeline import Work
from orchestrator.spec.sections import ParallelismSpec

FORWARD_S, BACKWARD_S = 0.05, 0.1
SCHEDULES = {"gpipe": 1, "1f1b": 1, "interleaved-1f1b": 2}
"""Schedule -> stages a rank."""
slow = pytest.mark.slow


def plan_of(schedule: str, pp: int, microbatches: int, virtual_stages: int) -> ParallelismSpec:
    return ParallelismSpec.model_validate(
        {"schedule": schedule, "pp": pp, "microbatches": microbatches, "virtual_stages": virtual_stages}
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("pp", "microbatches"),
    [
        pytest.param(2, 4, marks=slow),
        pytest.param(2, 8, marks=slow),
        pytest.param(4, 4, marks=slow),
        pytest.param(4, 8, marks=slow),
    ],
)
def test_the_measured_bubble_is_that_of_theory(schedule: str, pp: int, microbatches: int) -> None:
    plan = plan_of(schedule, pp, microbatches, SCHEDULES[schedule])
    theory = bubble_of(plan)
    ideal_us = 1e6 * microbatches * plan.virtual_stages * (FORWARD_S + BACKWARD_S)
    timelines = run_sleeping(
        plan, forward_s=FORWARD_S, input_s=BACKWARD_S, quiet_us=ideal_us * (1 + 1.1 * theory)
    )
    timeline, middle = timelines[0], median(one.bubble for one in timelines)
    print(
        f"{schedule} ({pp}, {microbatches}): theory {theory:.4f}, measured {timeline.bubble:.4f}, "
        f"median of {len(timelines)} steps {middle:.4f}"
    )
    assert timeline.bubble == pytest.approx(theory, rel=0.15)
    assert timeline.clock_error_us == 0
    assert [rank.rank for rank in timeline.ranks] == list(range(pp))
    for index, rank in enumerate(timeline.ranks):
        assert_runs_everything_once(rank.spans, plan, index, halves=False)


@pytest.mark.parametrize("schedule", ["zero-bubble", "zbv"])
def test_a_split_backward_is_recorded_in_its_halves(schedule: str) -> None:
    plan = plan_of(schedule, 2, 4, 2 if schedule == "zbv" else 1)
    (timeline,) = run_sleeping(plan, forward_s=0.01, input_s=0.01, weight_s=0.01, at_most=1)
    for index, rank in enumerate(timeline.ranks):
        assert_runs_everything_once(rank.spans, plan, index, halves=True)
        assert set(rank.busy_us) <= set(Work)
        assert rank.end_us - rank.start_us == rank.busy_total_us + rank.gaps_us


def assert_runs_everything_once(spans: Any, plan: ParallelismSpec, rank: int, *, halves: bool) -> None:
    """Each micro-batch of each of the rank's stages forward, then backward; nothing overlaps."""
    for stage in stages_of(plan, rank):
        for micro in range(plan.microbatches):
            works = [span.work for span in spans if (span.stage, span.microbatch) == (stage, micro)]
            whole = [Work.FORWARD, Work.BACKWARD]
            split = [Work.FORWARD, Work.BACKWARD_INPUT, Work.BACKWARD_WEIGHT]
            assert works == whole or (halves and works == split), (stage, micro, works)
    if halves:
        assert any(span.work is Work.BACKWARD_WEIGHT for span in spans)
    assert all(a.end_us <= b.start_us for a, b in itertools.pairwise(spans))
    assert {span.stage for span in spans} == set(stages_of(plan, rank))
