from __future__ import annotations

import pytest

from orchestrator.placement.mesh import Mesh
from orchestrator.spec.sections import ParallelismSpec

MESH = Mesh.of(ParallelismSpec(tp=2, pp=3, dp=2))


def test_ranks_and_coordinates_are_inverse() -> None:
    assert [MESH.rank(MESH.coordinates(rank)) for rank in range(MESH.size)] == list(range(12))


def test_the_inner_axis_runs_fastest() -> None:
    assert MESH.coordinates(0) == {"tp": 0, "cp": 0, "pp": 0, "dp": 0}
    assert MESH.coordinates(1)["tp"] == 1
    assert MESH.coordinates(2) == {"tp": 0, "cp": 0, "pp": 1, "dp": 0}
    assert MESH.coordinates(6) == {"tp": 0, "cp": 0, "pp": 0, "dp": 1}


def test_groups_by_hand() -> None:
    assert MESH.groups("tp") == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)]
    assert sorted(MESH.groups("pp")) == [(0, 2, 4), (1, 3, 5), (6, 8, 10), (7, 9, 11)]
    assert sorted(MESH.groups("dp")) == [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10), (5, 11)]
    assert MESH.blocks(("tp", "cp", "pp")) == [(0, 1, 2, 3, 4, 5), (6, 7, 8, 9, 10, 11)]


@pytest.mark.parametrize("axis", ["tp", "cp", "pp", "dp"])
def test_every_rank_is_in_one_group_of_each_axis_and_differs_in_that_axis_alone(axis: str) -> None:
    groups = MESH.groups(axis)
    assert sorted(rank for group in groups for rank in group) == list(range(12))
    for group in groups:
        assert [MESH.coordinates(rank)[axis] for rank in group] == list(range(MESH.degree(axis)))
        others = [{**MESH.coordinates(rank), axis: 0} for rank in group]
        assert all(other == others[0] for other in others)


def test_axes_in_another_order_number_ranks_in_that_order() -> None:
    mesh = Mesh((2, 3), ("dp", "tp"))
    assert mesh.groups("dp") == [(0, 1), (2, 3), (4, 5)]
    assert sorted(mesh.groups("tp")) == [(0, 2, 4), (1, 3, 5)]


@pytest.mark.parametrize("rank", [-1, 12])
def test_a_rank_outside_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match="outside a mesh of 12 ranks"):
        MESH.coordinates(rank)
