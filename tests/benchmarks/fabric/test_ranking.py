"""Kendall's tau by hand, and what a job of the benchmark is judged by."""

from __future__ import annotations

import pytest

from benchmarks.fabric.__main__ import figures, ratio
from benchmarks.fabric.ranking import kendall_tau


def test_the_same_order_is_one_and_the_opposite_minus_one() -> None:
    assert kendall_tau([1, 2, 3], [10, 20, 30]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1


def test_a_swap_of_neighbours_and_a_tie() -> None:
    """4 values, 6 pairs: one discordant (5 - 1) / 6; one tied in a: 5 concordant over sqrt(5 x 6)."""
    assert kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)
    assert kendall_tau([1, 1, 3, 4], [1, 2, 3, 4]) == pytest.approx(5 / 30**0.5)


def test_no_order_is_refused() -> None:
    with pytest.raises(ValueError, match="no order"):
        kendall_tau([1, 1], [1, 2])


def placement(name: str, predicted: float, *steps: float) -> dict[str, object]:
    return {"name": name, "predicted_communication_s": predicted, "step_s": list(steps)}


def test_figures_are_of_medians() -> None:
    found = figures(
        [
            placement("atoll", 1, 1.0, 1.0, 9.0),
            placement("pack 0", 2, 2.0),
            placement("spread 0", 4, 4.0),
            placement("worst", 5, 5.0),
        ]
    )
    assert found == {"over_best_of_ray": 0.5, "mean_of_ray_over_it": 3.0, "tau": 1.0}
    assert ratio(found, matters=True) == pytest.approx(0.8)  # tau 1 of 0.8; 0.5/1.03 and 1.5/3 are less
    assert ratio(found, matters=False) == pytest.approx(0.5 / 1.03)


@pytest.mark.parametrize(
    "found",
    [
        {"over_best_of_ray": 1.04, "mean_of_ray_over_it": 3.0, "tau": 1.0},
        {"over_best_of_ray": 0.5, "mean_of_ray_over_it": 1.4, "tau": 1.0},
        {"over_best_of_ray": 0.5, "mean_of_ray_over_it": 3.0, "tau": 0.79},
        {"over_best_of_ray": 0.5, "mean_of_ray_over_it": 3.0, "tau": -1.0},
    ],
)
def test_each_figure_can_miss_its_bar(found: dict[str, float]) -> None:
    assert ratio(found, matters=True) > 1
