"""Kendall's tau by hand, and what a job of the benchmark is judged by."""

from __future__ import annotations

import pytest

from benchmarks.fabric.__main__ import figures, ratio
from benchmarks.fabric.ranking import form, kendall_tau
from orchestrator.topology.fabric import Slot


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


def test_a_form_forgets_names_and_keeps_who_shares_a_node_and_a_leaf() -> None:
    leaf_of = {"n0": "a", "n1": "a", "n2": "b", "n3": "b"}

    def of(*nodes: str) -> object:
        return form([Slot(node, 0) for node in nodes], leaf_of)

    assert of("n0", "n0", "n2") == of("n3", "n3", "n1")
    assert of("n0", "n0", "n1") != of("n0", "n0", "n2")
    assert of("n0", "n1", "n0") != of("n0", "n0", "n1")


def placement(name: str, predicted: float, *steps: float, nodes: tuple[str, ...]) -> dict[str, object]:
    slots = [{"node": node, "index": 0} for node in nodes]
    return {"name": name, "predicted_communication_s": predicted, "step_s": list(steps), "slots": slots}


def test_figures_are_of_medians() -> None:
    found = figures(
        [
            placement("atoll", 1, 1.0, 1.0, 9.0, nodes=("l0n0", "l0n1", "l1n0", "l1n1")),
            placement("pack 0", 2, 2.0, nodes=("l0n0", "l0n0", "l1n0", "l1n0")),
            placement("spread 0", 4, 4.0, nodes=("l0n0", "l1n0", "l0n0", "l1n0")),
            placement("worst", 5, 5.0, nodes=("l0n0", "l1n0", "l1n0", "l0n0")),
        ]
    )
    assert found == {"over_best_of_ray": 0.5, "mean_of_ray_over_it": 3.0, "tau": 1.0}
    assert ratio(found, matters=True) == pytest.approx(0.8)  # tau 1 of 0.8; 0.5/1.03 and 1.5/3 are less
    assert ratio(found, matters=False) == pytest.approx(0.5 / 1.03)


def test_placements_of_one_form_are_one() -> None:
    """Atoll's and the first PACK's have 1, 1.2, 1.4 and 1.6 between them: both 1.3."""
    found = figures(
        [
            placement("atoll", 1, 1.4, 1.6, nodes=("l0n0", "l0n0", "l1n0")),
            placement("pack 0", 1, 1.0, 1.2, nodes=("l1n3", "l1n3", "l0n2")),
            placement("spread 0", 2, 2.6, nodes=("l0n0", "l1n0", "l0n1")),
        ]
    )
    assert found == pytest.approx({"over_best_of_ray": 1.0, "mean_of_ray_over_it": 1.5, "tau": 1.0})


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
