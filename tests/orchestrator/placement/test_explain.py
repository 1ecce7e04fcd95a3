from __future__ import annotations

import pytest

from orchestrator.placement.explain import plan_label
from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node


@pytest.mark.parametrize(
    ("plan", "label"),
    [
        (ParallelismSpec(), "single"),
        (ParallelismSpec(tp=2, pp=2, dp=2), "tp2 pp2 dp2"),
        (ParallelismSpec(dp=16), "dp16"),
        (ParallelismSpec(tp=2, dp=4, ep=4, zero=1), "tp2 dp4 ep4 zero1"),
        (ParallelismSpec(tp=8, cp=2, pp=4), "tp8 cp2 pp4"),
    ],
)
def test_plan_label(plan: ParallelismSpec, label: str) -> None:
    assert plan_label(plan) == label


def test_the_demo_is_explained() -> None:
    nodes = tuple(
        Node(f"n{i}", 2, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i // 2}", Tier.SPINE: "s0"}) for i in range(4)
    )
    fabric = Fabric(nodes)
    mesh = Mesh.of(ParallelismSpec(tp=2, pp=2, dp=2))
    answer = solve(mesh, PlacementSpec(), fabric, fabric.slots(), resources=ResourcesSpec())
    assert isinstance(answer, Placement)
    assert answer.explanation == (
        "8 ranks on 4 nodes (n0, n1, n2, n3), 2 leaves (l0, l1), 1 spine (s0)",
        "tp: all 4 groups inside one island each (required)",
        "pp: all 4 groups under one leaf each (required)",
        "dp: 4 groups, anywhere; the widest shares one spine",
        "leaf l0: replica 0",
        "leaf l1: replica 1",
    )
