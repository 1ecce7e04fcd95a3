"""The reference of a rank: the median of the others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.health.peers import History, others_median


@given(st.lists(st.one_of(st.floats(0, 1e6), st.just(float("nan"))), min_size=1, max_size=12))
def test_the_median_of_the_others_is_what_numpy_says_of_them(values: list[float]) -> None:
    found = others_median(np.array(values))
    for i in range(len(values)):
        others = [v for j, v in enumerate(values) if j != i and v == v]
        if not others:
            assert np.isnan(found[i])
        else:
            assert found[i] == pytest.approx(float(np.median(others)), rel=1e-12)


def test_upper_takes_the_larger_of_the_two_in_the_middle() -> None:
    assert others_median(np.array([1.0, 2.0, 5.0]), upper=True).tolist() == [5.0, 5.0, 2.0]


def test_history_expects_of_a_group_its_share_of_what_the_job_does_now() -> None:
    groups = (np.array([0]), np.array([1]), np.array([2]))
    history = History(groups)
    for _ in range(History.LEARNED):
        expected = history.expected(np.array([1.0, 2.0, 4.0]))
    assert expected.tolist() == [1.0, 2.0, 4.0]
    assert history.expected(np.array([1.5, 3.0, 6.0])).tolist() == [1.5, 3.0, 6.0]
    assert history.expected(np.array([1.0, 2.0, 6.0])).tolist() == [1.0, 2.0, 4.0]
