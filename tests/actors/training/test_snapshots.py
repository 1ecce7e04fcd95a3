"""The rank program with snapshots in memory: four ranks on two nodes, whose vaults are processes that outlive them."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from gang import FakeReporter, context, run_ranks
from plans import changed, demo_job

from actors import processes
from actors.training import loop
from actors.vault import EXTRA
from actors.vault.books import Vault
from actors.vault.server import VaultServer
from orchestrator.recovery.snapshots import Copy, plan_digest, restorable
from orchestrator.spec import JobSpec

HOMES = ["n0", "n0", "n1", "n1"]
PLAN = {"tp": 2, "pp": 2, "dp": 1, "microbatches": 2}
PLENTY = (1 << 40, 1 << 40)


class Node:
    """A vault in a process of its own: the test forks ranks, so it may have no threads."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        fork = multiprocessing.get_context("fork")
        self._pipe, its = fork.Pipe()
        self.process = fork.Process(target=_serve, args=(name, limit, its), daemon=True)
        self.process.start()
        its.close()
        self.address: dict[str, Any] = self._pipe.recv()

    def fence(self, attempt: int) -> tuple[Copy, ...]:
        self._pipe.send((1, attempt))
        copies: tuple[Copy, ...] = self._pipe.recv()
        return copies

    def end(self) -> None:
        self.process.kill()
        self.process.join()


def _serve(name: str, limit: int, pipe: Connection) -> None:
    processes.die_with_parent(multiprocessing.parent_process().pid)  # type: ignore[union-attr]
    vault = Vault(name, limit, lambda: PLENTY)
    pipe.send(asdict(VaultServer(vault, name, "127.0.0.1").address))
    while True:
        pipe.send(vault.fence(pipe.recv()))


class Nodes(dict[str, Node]):
    def add(self, name: str, limit: int = 1 << 28) -> None:
        self[name] = Node(name, limit)

    def lose(self, name: str) -> None:
        self.pop(name).end()

    def extras(self, spec: JobSpec, attempt: int, homes: Sequence[str]) -> dict[str, Any]:
        """What the supervisor tells the ranks (`actors.vault.job`)."""
        plan = plan_digest(spec.parallelism.model_dump(mode="json"), len(homes))
        found = restorable([copy for node in self.values() for copy in node.fence(attempt)], homes, plan)
        nodes = list(dict.fromkeys(homes))
        return {
            EXTRA: {
                "addresses": {name: node.address for name, node in self.items()},
                "homes": list(homes),
                "partners": {node: [other for other in nodes if other != node] for node in nodes},
                "plan": plan,
                "restorable": [
                    {"generation": r.generation.key, "sources": r.sources} for r in found.restorable
                ],
                "refused": found.refused,
            }
        }


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    for name in dict.fromkeys(HOMES):
        made.add(name)
    yield made
    for node in made.values():
        node.end()


def job(**memory: int) -> JobSpec:
    made = demo_job(parallelism=PLAN, steps=8, global_batch=4, eval_sequences=6, precision="fp32")
    return changed(made, checkpoint={"memory": memory})


def train(
    spec: JobSpec,
    directory: Path,
    nodes: Nodes,
    *,
    attempt: int = 1,
    stop_after: int | None = None,
    homes: Sequence[str] = HOMES,
) -> FakeReporter:
    """Runs the ranks; what rank 0 reported."""
    extras = nodes.extras(spec, attempt, homes)

    def program(rank: int, store: Any) -> FakeReporter:
        reporter = FakeReporter(stop_after=stop_after if rank == 1 else None)
        here = context(rank, len(homes), store, directory, reporter=reporter, attempt=attempt)
        loop.train(spec, replace(here, extras=extras))
        return reporter

    reporter: FakeReporter = run_ranks(len(homes), program)[0]
    return reporter


def losses(reporter: FakeReporter) -> list[tuple[int, float, float]]:
    return [(s["step"], s["loss"], s["grad_norm"]) for s in reporter.steps]


def interrupted(spec: JobSpec, directory: Path, nodes: Nodes) -> FakeReporter:
    """A job that ended after step 5 and whose storage has nothing of it."""
    reporter = train(spec, directory, nodes, stop_after=5)
    shutil.rmtree(directory / "checkpoints")
    return reporter


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> FakeReporter:
    """The run that nothing touches, without snapshots."""
    return train(job(), tmp_path_factory.mktemp("whole"), Nodes())


def test_row_74_ranks_go_on_from_memory_to_the_bit(tmp_path: Path, nodes: Nodes, whole: FakeReporter) -> None:
    first = interrupted(job(every=1), tmp_path, nodes)
    (kept,) = first.of("snapshot-kept")
    assert kept["step"] == 1
    assert kept["bytes"] > 10_000
    assert first.steps[2]["cost"]["phases_s"]["checkpoint"] > 0, "the copy is accounted for"
    resumed = train(job(every=1), tmp_path, nodes, attempt=2)
    (event,) = resumed.of("resumed")
    assert (event["from"], event["storage_bytes_read"], event["fetched"]) == ("memory", 0, [])
    assert 1 < event["step"] <= 5
    assert losses(resumed) == losses(whole)[event["step"] :]
    assert resumed.of("evaluated") == whole.of("evaluated")


@pytest.mark.parametrize("lost", ["n0", "n1"])
def test_a_lost_node_comes_back_from_its_partner(
    tmp_path: Path, nodes: Nodes, whole: FakeReporter, lost: str
) -> None:
    interrupted(job(every=1), tmp_path, nodes)
    nodes.lose(lost)
    nodes.add("spare")
    homes = ["spare" if home == lost else home for home in HOMES]
    resumed = train(job(every=1), tmp_path, nodes, attempt=2, homes=homes)
    (event,) = resumed.of("resumed")
    assert (event["from"], event["storage_bytes_read"]) == ("partner", 0)
    assert event["fetched"] == [rank for rank, home in enumerate(HOMES) if home == lost]
    assert losses(resumed) == losses(whole)[event["step"] :]


def test_storage_is_read_when_its_checkpoint_is_newer(
    tmp_path: Path, nodes: Nodes, whole: FakeReporter
) -> None:
    train(job(every=2), tmp_path, nodes, stop_after=5)
    stored = tmp_path / "checkpoints" / "step-00000005"
    resumed = train(job(every=2), tmp_path, nodes, attempt=2)
    (event,) = resumed.of("resumed")
    assert (event["step"], event["from"], event["path"]) == (5, "storage", str(stored))
    assert event["storage_bytes_read"] > sum(path.stat().st_size for path in stored.iterdir())
    assert losses(resumed) == losses(whole)[5:]
    assert resumed.of("snapshot-skipped") == []


def test_row_72_under_another_plan_storage_is_read_and_said_so(tmp_path: Path, nodes: Nodes) -> None:
    train(
        changed(job(every=1), checkpoint={"every": 2, "memory": {"every": 1}}), tmp_path, nodes, stop_after=5
    )
    for newer in (4, 5):
        shutil.rmtree(tmp_path / "checkpoints" / f"step-{newer:08d}")
    other = changed(job(every=1), parallelism={"tp": 1, "pp": 2, "dp": 2})
    resumed = train(other, tmp_path, nodes, attempt=2)
    (event,) = resumed.of("resumed")
    assert (event["step"], event["from"]) == (2, "storage")
    skipped = resumed.of("snapshot-skipped")
    assert skipped
    assert all(one["step"] > 2 and "another plan" in one["reason"] for one in skipped)


def test_what_does_not_fit_is_told_once_and_ends_nothing(tmp_path: Path, whole: FakeReporter) -> None:
    nodes = Nodes()
    nodes.add("n0", limit=1000)
    nodes.add("n1", limit=1000)
    reporter = train(job(every=1), tmp_path, nodes)
    assert losses(reporter) == losses(whole)
    (failed,) = reporter.of("snapshot-failed")
    assert failed["step"] == 1
    assert "does not fit: the vault of n0 has 0 of 1000 bytes in use" in failed["reason"]
    for node in nodes.values():
        node.end()


def test_a_vault_that_is_killed_is_told_of_and_ends_nothing(
    tmp_path: Path, nodes: Nodes, whole: FakeReporter
) -> None:
    address = dict(nodes["n1"].address)
    nodes["n1"].end()
    nodes["n1"].fence = lambda attempt: ()  # type: ignore[method-assign]
    assert nodes["n1"].address == address, "the ranks are told of a vault that is no more"
    reporter = train(job(every=1), tmp_path, nodes)
    assert losses(reporter) == losses(whole)
    assert any("n1" in failed["reason"] for failed in reporter.of("snapshot-failed"))
