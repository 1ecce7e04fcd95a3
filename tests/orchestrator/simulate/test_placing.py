"""The placer gives the solver's own answers, with and without asking it."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Room
from orchestrator.placement.solver import solve
from orchestrator.simulate.jobs import Shape
from orchestrator.simulate.placing import Placer
from orchestrator.spec.sections import AxisRule, PlacementSpec, Tier
from orchestrator.topology.fabric import Fabric, Node

ANYWHERE = AxisRule(tier=Tier.ANY)
MESHES = [
    (1, 1, 1, 1),
    (2, 1, 1, 1),
    (1, 1, 1, 3),
    (4, 1, 1, 1),
    (2, 1, 2, 1),
    (2, 1, 2, 2),
    (4, 1, 2, 1),
    (1, 2, 2, 1),
]


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Up to twelve nodes; islands are nodes, pairs of accelerators, or several nodes; some tiers unknown everywhere."""
    size = draw(st.sampled_from([2, 4]))
    per_leaf, per_island = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2]))
    halves = size == 4 and per_island == 1 and draw(st.booleans())
    known = draw(st.sets(st.sampled_from([Tier.ISLAND, Tier.LEAF, Tier.SPINE])))
    nodes = []
    for i in range(draw(st.integers(1, 12))):
        labels = {
            Tier.ISLAND: f"i{i // per_island}",
            Tier.LEAF: f"l{i // per_leaf}",
            Tier.SPINE: f"s{i // (2 * per_leaf)}",
        }
        islands = {index: f"n{i}/{index // 2}" for index in range(size)} if halves else {}
        domains = {tier: name for tier, name in labels.items() if tier in known}
        nodes.append(Node(f"n{i}", size, domains, islands, alive=draw(st.integers(0, 9)) > 0))
    return Fabric(tuple(nodes))


@settings(max_examples=300, deadline=None)
@given(fabrics(), st.sampled_from(MESHES), st.booleans(), st.integers(0, 2**32), st.floats(0.1, 1.0))
def test_the_same_answer_as_the_solver_in_every_state(
    fabric: Fabric, degrees: tuple[int, ...], topology: bool, seed: int, part: float
) -> None:
    rules = PlacementSpec() if topology else PlacementSpec(tp=ANYWHERE, cp=ANYWHERE, pp=ANYWHERE, dp=ANYWHERE)
    shape, placer, rng = Shape(Mesh(degrees), rules), Placer(fabric), random.Random(seed)
    slots = sorted(fabric.slots())
    for _ in range(3):  # one placer through several states: it keeps counts from one to the next
        room = Room(frozenset(rng.sample(slots, int(part * len(slots)))))
        mine = placer.place(shape, room)
        solvers = solve(shape.mesh, shape.rules, fabric, room.slots, resources=shape.resources)
        if isinstance(solvers, Refusal):
            assert isinstance(mine, Refusal)
            assert mine.ever == solvers.ever
        else:
            assert isinstance(mine, Placement)
            assert mine.slots == solvers.slots


def test_most_questions_are_not_asked() -> None:
    nodes = [Node(f"n{i}", 8, {Tier.ISLAND: f"n{i}", Tier.LEAF: f"l{i // 4}"}) for i in range(8)]
    placer = Placer(Fabric(tuple(nodes)))
    room = Room(Fabric(tuple(nodes)).slots())
    for _ in range(30):
        answer = placer.place(Shape(Mesh((1, 1, 1, 1))), room)
        assert isinstance(answer, Placement)
        room = room.without(answer)
    assert placer.solves == 0
    placer.place(Shape(Mesh((8, 1, 2, 1))), room)
    assert placer.solves == 1
