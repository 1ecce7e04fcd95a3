"""Checkpoint intervals, computed by hand from the papers' formulas."""

from __future__ import annotations

import pytest

from orchestrator.estimate.interval import (
    LLAMA_3_GPU_HOURS,
    advise,
    daly_s,
    mean_time_between_failures_s,
    young_s,
)

HOUR = 3600.0


def test_young() -> None:
    # Five minutes a checkpoint, a failure a day: sqrt(2 x 5 x 1440) = 120 minutes.
    assert young_s(300, 24 * HOUR) == pytest.approx(120 * 60)


def test_daly() -> None:
    # 120 (1 + sqrt(5/2880)/3 + 5/2880/9) - 5 = 116.690 minutes.
    assert daly_s(300, 24 * HOUR) == pytest.approx(116.690 * 60, abs=0.1)
    # A checkpoint that takes more than twice the time between failures: the interval is that time.
    assert daly_s(7201, HOUR) == HOUR


def test_llama_3() -> None:
    """419 interruptions in 54 days on 16,384: one in about three hours (Dubey et al. 2024, section 3.3.4)."""
    assert mean_time_between_failures_s(LLAMA_3_GPU_HOURS, 16_384) == pytest.approx(54 * 24 * HOUR / 419)


def test_advice_is_in_whole_steps() -> None:
    found = advise(stall_s=300, failures_s=24 * HOUR, step_s=60)
    assert found.steps == 117
    assert found.seconds == 117 * 60
    assert found.lost == pytest.approx(300 / 7320 + 7020 / (2 * 86_400))
    assert advise(stall_s=0.001, failures_s=HOUR, step_s=60).steps == 1


@pytest.mark.parametrize(("stall", "failures"), [(0, 1), (1, 0), (-1, 1)])
def test_impossible_numbers_are_refused(stall: float, failures: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        daly_s(stall, failures)
    with pytest.raises(ValueError, match="at least 1"):
        mean_time_between_failures_s(1, 0)
