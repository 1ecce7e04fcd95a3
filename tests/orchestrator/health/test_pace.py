"""How long a step may take: long ones, first ones and what lies between steps are not taken for hangs."""

from __future__ import annotations

import pytest

from orchestrator.health.pace import LONGEST_FACTOR, STEPS_KEPT, Pace
from orchestrator.health.standing import CHECKPOINT, EVALUATION, STEP
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.sections import RecoverySpec

TIMES = Timeouts.of(RecoverySpec())


def paced(*steps: float) -> Pace:
    pace = Pace(TIMES)
    for number, seconds in enumerate(steps, 1):
        pace.took(number, seconds)
    return pace


@pytest.mark.parametrize("step_s", [0.01, 0.5, 3.0])
def test_a_small_job_is_judged_within_a_minute(step_s: float) -> None:
    pace = paced(*[step_s] * 20)
    # The verdict comes at the first look after the limit, the confirmation later, and the stacks (at most 2 s).
    assert pace.limit_s({STEP}) == 30.0
    assert pace.limit_s({STEP}) + 2 * pace.confirm_s + 2.0 < 60.0


def test_long_steps_have_ten_times_their_median() -> None:
    assert paced(*[40.0] * 20).limit_s({STEP}) == 400.0


def test_one_long_step_among_short_ones_may_come_again_three_times_as_long() -> None:
    pace = paced(1.0, 1.0, 1.0, 50.0, *[1.0] * 10)
    assert pace.limit_s({STEP}) == LONGEST_FACTOR * 50.0
    for number in range(STEPS_KEPT):
        pace.took(100 + number, 1.0)
    assert pace.limit_s({STEP}) == 30.0


def test_first_steps_have_as_long_as_anything() -> None:
    for steps in ((), (0.1,), (0.1, 0.1)):
        assert paced(*steps).limit_s({STEP}) == TIMES.silence_s == 1800.0


def test_the_first_steps_after_a_repair_have_ten_times_what_they_took_before() -> None:
    pace = paced(20.0, *[1.0] * 300)
    assert pace.limit_s({STEP}) == 30.0
    pace.begin_attempt()
    assert pace.limit_s({STEP}) == 200.0
    for number in range(3):
        pace.took(number, 1.0)
    assert pace.limit_s({STEP}) == 30.0


@pytest.mark.parametrize(
    ("phases", "limit_s"),
    [
        ({EVALUATION}, 300.0),
        ({CHECKPOINT}, 1800.0),
        ({STEP, EVALUATION}, 300.0),
        ({STEP, CHECKPOINT}, 1800.0),
        ({STEP, ""}, 1800.0),
        (set(), 1800.0),
    ],
)
def test_the_most_patient_phase_counts(phases: set[str], limit_s: float) -> None:
    assert paced(*[0.1] * 20).limit_s(phases) == limit_s


def test_nothing_is_waited_for_longer_than_the_silence() -> None:
    assert paced(*[500.0] * 20).limit_s({STEP}) == 1800.0
    assert paced(*[500.0] * 20).limit_s({EVALUATION}) == 1800.0


def test_each_verdict_doubles_the_limit_until_the_job_is_past_that_step() -> None:
    pace = paced(*[0.1] * 20)
    pace.condemned(20)
    pace.begin_attempt()
    for step in range(15, 21):
        pace.took(step, 0.1)  # again, from a checkpoint
    assert pace.limit_s({STEP}) == 60.0
    pace.condemned(20)
    assert pace.limit_s({STEP}) == 120.0
    pace.took(21, 50.0)  # it was only slow
    assert pace.limit_s({STEP}) == 2 * 2 * LONGEST_FACTOR * 50.0, "the step itself may be slow twice"
    pace.took(22, 0.1)
    assert pace.limit_s({STEP}) == LONGEST_FACTOR * 50.0


def test_a_tight_setting_is_kept() -> None:
    pace = Pace(Timeouts.of(RecoverySpec(hang_after_s=2.0)))
    for step in range(5):
        pace.took(step, 0.05)
    assert pace.limit_s({STEP}) + 2 * pace.confirm_s < 5.0
