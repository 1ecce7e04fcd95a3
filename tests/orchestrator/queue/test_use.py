"""What projects used lately: against the integral, and the meter against the sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.queue.use import Span, UseMeter, mean_use


def test_half_of_the_past_lies_within_a_half_life() -> None:
    """Two accelerators for one half-life up to now: half the weight of the past, so one. One half-life ago: a half."""
    assert mean_use([Span("p", 2, 0.0, 100.0)], now_s=100.0, half_life_s=100.0) == {"p": 1.0}
    assert mean_use([Span("p", 2, 0.0, 100.0)], now_s=200.0, half_life_s=100.0) == {"p": 0.5}
    assert mean_use([Span("p", 3, -1e9, 0.0)], now_s=0.0, half_life_s=100.0) == {"p": pytest.approx(3.0)}


def test_against_a_sum_over_small_steps() -> None:
    """sum of size x 2^(-age / h) x ln 2 / h x dt, dt = 0.01."""
    h, now = 7.0, 30.0
    steps = [0.005 + 0.01 * i for i in range(500, 1200)]  # 5 s to 12 s
    summed = sum(4 * 0.5 ** ((now - t) / h) * 0.6931471805599453 / h * 0.01 for t in steps)
    assert mean_use([Span("p", 4, 5.0, 12.0)], now_s=now, half_life_s=h)["p"] == pytest.approx(
        summed, rel=1e-6
    )


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 9), st.integers(0, 50), st.integers(1, 50)),
        max_size=8,
    )
)
def test_the_meter_is_the_same_sum(spans: list[tuple[str, int, int, int]]) -> None:
    changes = [(begin, project, size) for project, size, begin, _ in spans]
    changes += [(begin + lasts, project, -size) for project, size, begin, lasts in spans]
    meter = UseMeter(20.0)
    for at, project, by in sorted(changes, key=lambda change: change[0]):
        meter.change(project, by, float(at))
    summed = mean_use(
        [Span(project, size, float(begin), float(begin + lasts)) for project, size, begin, lasts in spans],
        now_s=120.0,
        half_life_s=20.0,
    )
    assert meter.means(120.0) == pytest.approx(dict(summed))
    assert not any(meter.held.values())
