"""Bubbles against the numbers of the papers."""

from __future__ import annotations

import pytest

from orchestrator.estimate.pipeline import bubble, bubble_of
from orchestrator.spec.sections import ParallelismSpec, PipelineSchedule


@pytest.mark.parametrize(
    ("schedule", "pp", "microbatches", "virtual_stages", "wanted"),
    [
        ("gpipe", 4, 8, 1, 3 / 8),  # Narayanan et al. 2021, figure 3: 4 devices, 8 micro-batches
        ("1f1b", 4, 8, 1, 3 / 8),  # figure 4, top
        ("interleaved-1f1b", 4, 8, 2, 3 / 16),  # figure 4, bottom
        ("zero-bubble", 4, 8, 1, 1 / 8),  # Qi et al. 2024: a third of 1F1B's
        ("zbv", 4, 8, 2, 0.0),
        ("gpipe", 1, 8, 1, 0.0),
        # One micro-batch goes down all stages and back: ranks idle (p-1)(F+B), of F + B + W that they work.
        ("zero-bubble", 4, 1, 1, 2.0),
        ("zbv", 2, 1, 2, 2 / 3),
        ("interleaved-1f1b", 4, 1, 2, 3.0),
        ("interleaved-1f1b", 4, 4, 2, 3 / 8),
    ],
)
def test_bubbles_of_the_literature(
    schedule: str, pp: int, microbatches: int, virtual_stages: int, wanted: float
) -> None:
    found = bubble(
        PipelineSchedule(schedule), pp=pp, microbatches=microbatches, virtual_stages=virtual_stages
    )
    assert found == pytest.approx(wanted)


def test_the_bubble_of_a_plan() -> None:
    assert bubble_of(ParallelismSpec(pp=2, microbatches=4)) == 0.25
    assert bubble_of(ParallelismSpec(microbatches=4)) == 0.0


@pytest.mark.parametrize("field", ["pp", "microbatches", "virtual_stages"])
def test_numbers_below_one_are_refused(field: str) -> None:
    numbers = {"pp": 2, "microbatches": 2, "virtual_stages": 1} | {field: 0}
    with pytest.raises(ValueError, match=f"{field} 0"):
        bubble(PipelineSchedule.GPIPE, **numbers)
