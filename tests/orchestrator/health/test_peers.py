"""The reference of a rank: the middle of the others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.health.peers import History, others_middle


@given(st.lists(st.one_of(st.floats(0, 1e3), st.just(float("nan"))), min_size=1, max_size=30), st.booleans())
def test_the_middle_of_the_others_is_what_sorting_them_says(values: list[float], upper: bool) -> None:
    found = others_middle(np.array(values), upper=upper)
    for i in range(len(values)):
        others = sorted(v for j, v in enumerate(values) if j != i and v == v)
        count = len(others)
        cut = (count - 1) // 2 if count <= 6 else math.ceil(count / 4)
        kept = others[count // 2 if upper else cut : count - cut]
        if not others:
            assert np.isnan(found[i])
        else:
            assert found[i] == pytest.approx(sum(kept) / len(kept), rel=1e-9, abs=1e-9)


def test_of_few_others_the_middle_is_the_median() -> None:
    assert others_middle(np.array([1.0, 2.0, 5.0])).tolist() == [3.5, 3.0, 1.5]
    assert others_middle(np.array([1.0, 2.0, 5.0, 9.0])).tolist() == [5.0, 5.0, 2.0, 2.0]


def test_upper_takes_the_larger_of_the_two_in_the_middle() -> None:
    assert others_middle(np.array([1.0, 2.0, 5.0]), upper=True).tolist() == [5.0, 5.0, 2.0]


def test_history_expects_of_a_group_its_share_of_what_the_job_does_now() -> None:
    groups = (np.array([0]), np.array([1]), np.array([2]))
    history = History(groups)
    for _ in range(History.LEARNED):
        expected = history.expected(np.array([1.0, 2.0, 4.0]))
    assert expected.tolist() == [1.0, 2.0, 4.0]
    assert history.expected(np.array([1.5, 3.0, 6.0])).tolist() == [1.5, 3.0, 6.0]
    assert history.expected(np.array([1.0, 2.0, 6.0])).tolist() == [1.0, 2.0, 4.0]
