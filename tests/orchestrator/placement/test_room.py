"""CPUs bound what a node takes: never more ranks than its free CPUs feed, and a sentence that says what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.placement.mesh import Mesh
from orchestrator.placement.placement import Placement, Refusal
from orchestrator.placement.room import Holding, Room, fed_slots, free_room
from orchestrator.placement.solver import solve
from orchestrator.spec.sections import ParallelismSpec, PlacementSpec, ResourcesSpec, Tier
from orchestrator.topology.fabric import Fabric, Node, Slot


def cluster(cpus: float | None, *, nodes: int = 2, width: int = 4) -> Fabric:
    return Fabric(
        tuple(
            Node(f"n{i}", width, {Tier.ISLAND: f"n{i}", Tier.LEAF: "l0"}, accelerator="cpu", cpus=cpus)
            for i in range(nodes)
        )
    )


def ask(fabric: Fabric, room: Room, cpus_per_rank: float, *, tp: int = 1, dp: int = 1) -> Placement | Refusal:
    return solve(
        Mesh.of(ParallelismSpec(tp=tp, dp=dp)),
        PlacementSpec(),
        fabric,
        room.slots,
        resources=ResourcesSpec(cpus_per_rank=cpus_per_rank),
        cpus=room.cpus,
    )


def test_what_is_held_is_not_free() -> None:
    fabric = Fabric(
        (
            *cluster(4).nodes,
            Node("dead", 1, alive=False, cpus=1),
            Node("cordoned", 1, schedulable=False, cpus=1),
        )
    )
    room = free_room(fabric, [Holding((Slot("n0", 0), Slot("n0", 1)), 1.5), Holding((Slot("n1", 3),), 0.0)])
    assert room.cpus == {"n0": 1.0, "n1": 4.0}
    assert room.slots == {Slot("n0", 2), Slot("n0", 3), Slot("n1", 0), Slot("n1", 1), Slot("n1", 2)}


def test_ranks_go_where_cpus_are_left() -> None:
    fabric = cluster(4)
    room = free_room(fabric, [Holding((Slot("n0", 0),), 3.0)])
    answer = ask(fabric, room, 2, dp=2)
    assert isinstance(answer, Placement)
    assert {slot.node for slot in answer.slots} == {"n1"}
    assert room.without(answer).cpus == {"n0": 1.0, "n1": 0.0}


def test_a_job_waits_for_cpus_that_others_hold_and_says_where() -> None:
    fabric = cluster(4, nodes=1)
    answer = ask(fabric, free_room(fabric, [Holding((Slot("n0", 0),), 3.0)]), 1, tp=2)
    message = "node n0: 1 of 4 CPUs free, 2 needed for its 2 ranks (resources.cpus_per_rank 1)"
    assert answer == Refusal(message, (message,), ever=True)


def test_more_cpus_than_any_node_has_is_for_ever() -> None:
    fabric = cluster(4)
    answer = ask(fabric, free_room(fabric, []), 5)
    assert isinstance(answer, Refusal)
    assert answer.message == "node n0: 4 of 4 CPUs free, 5 needed for its rank (resources.cpus_per_rank 5)"
    assert not answer.ever


def test_when_slots_are_missing_the_sentence_is_about_slots() -> None:
    fabric = cluster(4, nodes=1)
    answer = ask(fabric, free_room(fabric, [Holding((Slot("n0", 0),), 4.0)]), 1, tp=4)
    assert isinstance(answer, Refusal)
    assert "CPU" not in answer.message


def test_unknown_cpus_are_no_limit_and_still_counted() -> None:
    fabric = cluster(None)
    answer = ask(fabric, free_room(fabric, []), 100)
    assert isinstance(answer, Placement)
    assert answer.cpus_per_rank == 100


def test_tensor_groups_are_kept_whole_in_islands_smaller_than_the_node() -> None:
    """CPUs for two ranks; one slot is free in the first island, two in the second: the group of two is there."""
    fabric = Fabric((Node("n0", 4, {}, {0: "a", 1: "a", 2: "b", 3: "b"}, "cpu", cpus=2.0),))
    answer = ask(fabric, Room(fabric.slots() - {Slot("n0", 0)}, {"n0": 2.0}), 1, tp=2)
    assert isinstance(answer, Placement)
    assert set(answer.slots) == {Slot("n0", 2), Slot("n0", 3)}


def test_fractions_add_up() -> None:
    """Ten times 0.1 is a little less than 1 in binary; it feeds ten ranks all the same."""
    fabric = cluster(1, nodes=1, width=10)
    room = Room(fabric.slots(), {"n0": sum([0.1] * 10)})
    assert len(fed_slots(fabric, room.slots, room.cpus, per_rank=0.1, group=1)) == 10


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.integers(1, 2),
    st.integers(1, 4),
)
def test_a_placement_never_asks_more_of_a_node_than_it_has(
    cpus: list[int], per_rank: float, tp: int, dp: int
) -> None:
    """And one is found whenever counting by hand (groups a node holds: min of slots and CPUs) says there is one."""
    fabric = cluster(None, nodes=len(cpus))
    fabric = Fabric(tuple(replace(n, cpus=float(c)) for n, c in zip(fabric.nodes, cpus, strict=True)))
    room = free_room(fabric, [])
    answer = ask(fabric, room, per_rank, tp=tp, dp=dp)
    fed = [min(4, int(c / per_rank)) if per_rank else 4 for c in cpus]
    assert isinstance(answer, Placement) == (sum(count // tp for count in fed) >= dp)
    if isinstance(answer, Placement):
        for node, ranks in Counter(slot.node for slot in answer.slots).items():
            assert ranks * per_rank <= room.cpus[node]
