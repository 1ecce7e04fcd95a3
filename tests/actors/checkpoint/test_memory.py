"""Snapshots in real vaults over real sockets: kept, copied, found again, and refused when they are no good.

The two ranks are threads that agree without a process group; `tests/actors/training/test_snapshots.py` has whole ranks.
Tests named by row are about faults that users of similar systems reported (field-faults.md).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.stateful import Stateful

from actors.checkpoint.memory import KeepResult, MemoryStore, Restored, VaultOrders
from actors.checkpoint.peers import Peers
from actors.vault.books import Vault
from actors.vault.server import VaultServer
from orchestrator.recovery.snapshots import Generation, plan_digest, restorable

PLAN = plan_digest({"dp": 2}, 2)
HOMES = ["n0", "n1"]
PARTNERS = {"n0": ("n1",), "n1": ("n0",)}
PLENTY = (1 << 40, 1 << 40)


class Tensors(Stateful):
    """A part of a state: any tensors by name."""

    def __init__(self, **tensors: torch.Tensor) -> None:
        self.tensors = tensors

    def state_dict(self) -> dict[str, Any]:
        return dict(self.tensors)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(state_dict[name])


def state_of(rank: int, step: int) -> dict[str, Stateful]:
    """Values that follow from rank and step; types, shapes and sizes of every kind that a model has."""
    value = float(100 * rank + step)
    return {
        "model": Tensors(
            weight=torch.full((3, 5), value, dtype=torch.float32),
            half=torch.full((7,), value, dtype=torch.bfloat16),
            none=torch.empty((0, 4)),
            turned=torch.arange(6, dtype=torch.float64).reshape(2, 3).T + value,
        ),
        "optimizer": Tensors(count=torch.tensor(value), mask=torch.tensor([True, False])),
    }


def values(state: Mapping[str, Stateful]) -> dict[str, list[Any]]:
    return {
        f"{part}.{name}": tensor.flatten().tolist()
        for part, stateful in state.items()
        for name, tensor in stateful.state_dict().items()
    }


@dataclass
class Node:
    vault: Vault
    server: VaultServer


@dataclass
class Cluster:
    """Nodes that keep snapshots, in this process; what a supervisor does between attempts."""

    limit: int = 1 << 20
    nodes: dict[str, Node] = field(default_factory=dict)

    def add(self, name: str) -> None:
        vault = Vault(name, self.limit, lambda: PLENTY)
        self.nodes[name] = Node(vault, VaultServer(vault, name, "127.0.0.1"))

    def lose(self, name: str) -> None:
        self.nodes.pop(name).vault.clear()

    def orders(self, rank: int, attempt: int, *, homes: list[str] = HOMES, plan: str = PLAN) -> VaultOrders:
        copies = [copy for node in self.nodes.values() for copy in node.vault.fence((1, attempt))]
        found = restorable(copies, homes, plan)
        return VaultOrders.of(
            {
                "addresses": {name: asdict(node.server.address) for name, node in self.nodes.items()},
                "homes": homes,
                "partners": PARTNERS,
                "plan": plan,
                "restorable": [
                    {"generation": list(one.generation.key), "sources": one.sources}
                    for one in found.restorable
                ],
            },
            rank,
        )

    def held(self) -> dict[str, set[tuple[int, int]]]:
        """By node (rank, step) of all that it holds."""
        return {
            name: {(c.rank, c.generation.step) for c in node.vault.fence((9, 9))}
            for name, node in self.nodes.items()
        }


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    for name in HOMES:
        made.add(name)
    yield made
    for node in made.nodes.values():
        node.vault.clear()


class Meeting:
    """Two ranks in two threads of this process that agree without a process group."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)
        self._told: list[Any] = [None, None]

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._told[rank] = value
        self._barrier.wait(30)
        told = list(self._told)
        self._barrier.wait(30)
        return told


@dataclass(frozen=True, slots=True)
class ThreadPeers(Peers):
    meeting: Meeting | None = None

    def __post_init__(self) -> None:
        assert self.meeting is not None

    def gather(self, value: Any) -> list[Any]:
        assert self.meeting is not None
        return self.meeting.gather(self.rank, value)


@contextmanager
def stores(cluster: Cluster, attempt: int = 1, **orders: Any) -> Iterator[list[MemoryStore]]:
    meeting = Meeting()
    told = [cluster.orders(rank, attempt, **orders) for rank in range(2)]
    made = [
        MemoryStore(
            told[rank],
            fence=(1, attempt),
            peers=ThreadPeers(rank=rank, world_size=2, group=None, meeting=meeting),
        )
        for rank in range(2)
    ]
    yield made
    for store in made:
        store.close()


def both(work: Any) -> list[Any]:
    """`work(rank)` on both ranks at once; what each gave."""
    answers: list[Any] = [None, None]

    def run(rank: int) -> None:
        answers[rank] = work(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return answers


def save(made: list[MemoryStore], step: int, states: Any = state_of) -> list[KeepResult]:
    def work(rank: int) -> KeepResult:
        assert made[rank].save(step, states(rank, step), {"step": step})
        made[rank].wait()
        (result,) = made[rank].drain()
        return result

    return both(work)


def load(
    made: list[MemoryStore], *, newer_than: int = 0
) -> tuple[list[Restored | None], list[dict[str, list[Any]]]]:
    states = [state_of(rank, 0) for rank in range(2)]
    found = both(lambda rank: made[rank].load(states[rank], newer_than=newer_than))
    for store in made:
        store.wait()
    return found, [values(state) for state in states]


def expected(step: int) -> list[dict[str, list[Any]]]:
    return [values(state_of(rank, step)) for rank in range(2)]


def test_a_snapshot_lies_on_its_node_and_at_its_partner(cluster: Cluster) -> None:
    with stores(cluster) as made:
        assert [result.failed for result in save(made, 10)] == [None, None]
        assert cluster.held() == {"n0": {(0, 10), (1, 10)}, "n1": {(0, 10), (1, 10)}}


def test_the_generation_before_goes_once_the_new_one_is_complete(cluster: Cluster) -> None:
    with stores(cluster) as made:
        for step in (10, 20, 30):
            (first, second) = save(made, step)
            assert (first.failed, second.failed) == (None, None)
            assert first.bytes == second.bytes > 0
    assert cluster.held() == {"n0": {(0, 30), (1, 30)}, "n1": {(0, 30), (1, 30)}}


def test_ranks_that_died_find_everything_on_their_own_node(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10)
    torch.manual_seed(3)
    with stores(cluster) as made:
        save(made, 20)
    drawn = torch.rand(4)
    with stores(cluster, attempt=2) as made:
        found, states = load(made)
        assert torch.equal(torch.rand(4), drawn), "random numbers go on as they would have"
    assert states == expected(20)
    for one in found:
        assert one is not None
        assert (one.step, one.origin, one.fetched, one.extras) == (20, "memory", (), {"step": 20})


@pytest.mark.parametrize("lost", HOMES)
def test_a_lost_node_is_made_up_for_by_its_partner(cluster: Cluster, lost: str) -> None:
    with stores(cluster) as made:
        save(made, 10)
    cluster.lose(lost)
    cluster.add("spare")
    homes = ["spare" if home == lost else home for home in HOMES]
    with stores(cluster, attempt=2, homes=homes) as made:
        found, states = load(made)
    assert states == expected(10)
    assert [(one.origin, one.fetched) for one in found if one] == [("partner", (HOMES.index(lost),))] * 2
    assert (HOMES.index(lost), 10) in cluster.held()["spare"], "it has its own again, for the next loss"


def test_row_70_weights_that_are_not_finite_replace_no_good_snapshot(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10)

        def fails(rank: int, step: int) -> dict[str, Stateful]:
            state = state_of(rank, step)
            if rank == 1:
                state["model"].tensors["weight"][1, 2] = float("nan")  # type: ignore[attr-defined]
            return state

        for result in save(made, 20, fails):
            assert result.failed == "rank 1: model.weight has 1 non-finite of 15 values"
    with stores(cluster, attempt=2) as made:
        _, states = load(made)
    assert states == expected(10)


def test_row_60_a_gang_that_dies_before_a_snapshot_is_complete_has_the_one_before(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stores(cluster) as made:
        save(made, 10)

        def dies(*_: Any) -> None:
            raise OSError("the node is gone")

        monkeypatch.setattr(made[1], "_put", dies)
        assert save(made, 20)[0].failed == "rank 1: OSError: the node is gone"
    with stores(cluster, attempt=2) as made:
        found, states = load(made)
    assert states == expected(10)
    assert [one.extras for one in found if one] == [{"step": 10}] * 2, (
        "row 66: state and progress are of one step"
    )


def test_what_does_not_fit_is_refused_and_the_last_good_one_stays(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10)

        def larger(rank: int, step: int) -> dict[str, Stateful]:
            return {**state_of(rank, step), "extra": Tensors(big=torch.zeros(1 << 20))}

        for result in save(made, 20, larger):
            assert result.failed is not None
            assert "does not fit" in result.failed
            assert "checkpoint.memory.limit_bytes" in result.failed
        assert [result.failed for result in save(made, 30)] == [None, None], "and training goes on"
    with stores(cluster, attempt=2) as made:
        assert load(made)[1] == expected(30)


def test_a_storage_checkpoint_that_is_newer_is_preferred(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10)
    with stores(cluster, attempt=2) as made:
        found, states = load(made, newer_than=11)
    assert found == [None, None]
    assert states == expected(0)


def damage(cluster: Cluster, node: str, rank: int, step: int) -> None:
    """What memory that loses a bit does: the file's content no longer has the digest that was taken of it."""
    vault = cluster.nodes[node].vault
    held = vault._held[rank][Generation(1, 1, 0, step)]
    content = bytearray(os.pread(held.file, held.copy.bytes, 0))
    content[17] ^= 4
    broken = os.memfd_create("broken", os.MFD_ALLOW_SEALING)
    os.write(broken, content)
    os.dup2(broken, held.file)
    os.close(broken)


def test_a_damaged_snapshot_is_read_from_the_partner(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10)
    damage(cluster, "n0", 0, 10)
    with stores(cluster, attempt=2) as made:
        found, states = load(made)
    assert states == expected(10)
    assert [(one.origin, one.fetched) for one in found if one] == [("partner", (0,))] * 2


def test_one_that_is_damaged_everywhere_is_passed_over_by_all_ranks(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10)
    for node in HOMES:
        damage(cluster, node, 0, 10)
    with stores(cluster, attempt=2) as made:
        found, states = load(made)
        for store in made:
            ((step, why),) = store.passed_over
            assert step == 10
            assert "rank 0: the snapshot of rank 0 at n0 is damaged" in why
            assert "at n1 is damaged" in why
    assert found == [None, None]
    assert states == expected(0), "no rank has half of it"


def test_a_snapshot_of_another_model_is_passed_over(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 10, lambda rank, step: {"model": Tensors(weight=torch.zeros(2, 2))})
    with stores(cluster, attempt=2) as made:
        found, _ = load(made)
        assert "it holds ['model'], this rank's state is" in made[1].passed_over[0][1]
    assert found == [None, None]


def test_row_40_a_rank_of_an_older_attempt_changes_nothing(cluster: Cluster) -> None:
    with stores(cluster) as old:
        save(old, 10)
        with stores(cluster, attempt=2) as new:
            load(new)
            for result in save(old, 20):
                assert result.failed is not None
                assert "attempt 1 of supervisor 1 is over" in result.failed
            assert [result.failed for result in save(new, 15)] == [None, None]
    with stores(cluster, attempt=3) as made:
        assert load(made)[1] == expected(15)


def test_after_going_back_a_smaller_step_is_the_newer_one(cluster: Cluster) -> None:
    with stores(cluster) as made:
        save(made, 30)
        for store in made:
            store.rewound()
        save(made, 20)
    with stores(cluster, attempt=2) as made:
        assert load(made)[1] == expected(20)


def test_what_is_due_while_one_is_on_its_way_is_left_out_by_all(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stores(cluster) as made:
        slow, put = threading.Event(), made[1]._put

        def later(*arguments: Any) -> None:
            assert slow.wait(30)
            put(*arguments)

        monkeypatch.setattr(made[1], "_put", later)
        taken = [both(lambda rank: made[rank].save(10, state_of(rank, 10), {}))]
        taken.append(both(lambda rank: made[rank].save(20, state_of(rank, 20), {})))
        assert made[1].save(30, state_of(1, 30), {}) is False, "one rank is ahead of the other"
        slow.set()
        for store in made:
            store.wait()
        taken.append(both(lambda rank: made[rank].save(30, state_of(rank, 30), {})))
        taken.append(both(lambda rank: made[rank].save(40, state_of(rank, 40), {})))
    assert taken == [[True, True], [False, False], [False, False], [True, True]]
    with stores(cluster, attempt=2) as made:
        assert load(made)[1] == expected(40)


def test_a_vault_that_ends_is_told_of_and_ends_nothing(cluster: Cluster) -> None:
    told = [cluster.orders(rank, 1) for rank in range(2)]
    meeting = Meeting()
    made = [
        MemoryStore(
            VaultOrders({}, told[rank].node, told[rank].partners, PLAN),
            fence=(1, 1),
            peers=ThreadPeers(rank=rank, world_size=2, group=None, meeting=meeting),
        )
        for rank in range(2)
    ]
    for result in save(made, 10):
        assert result.failed == "rank 0: the vault of node n0 did not start"


def test_a_stranger_is_told_nothing(cluster: Cluster) -> None:
    import socket

    from actors.vault.wire import WireError, receive, send

    address = cluster.nodes["n0"].server.address
    with socket.create_connection((address.host, address.port), timeout=10) as connection:
        send(connection, {"token": "guessed"})
        send(connection, {"do": "fetch", "rank": 0, "generation": [1, 1, 0, 10]})
        with pytest.raises((WireError, ConnectionResetError)):
            receive(connection)


def test_the_lease_runs_from_the_last_connection(cluster: Cluster) -> None:
    server = cluster.nodes["n0"].server
    with stores(cluster) as made:
        save(made, 10)
        assert server.idle_s == 0.0
    deadline = threading.Event()
    for _ in range(100):
        if server.idle_s > 0:
            break
        deadline.wait(0.05)
    assert 0 < server.idle_s < 30
