"""A node is lost and a spare is under its leaf: its ranks get the spare, the rest of the gang stays as it is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import select

from actors import naming
from actors.launcher import RayLauncher
from actors.local_cluster import LocalCluster
from actors.messages import AgentFacts
from actors.ray_environment import NAMESPACE
from orchestrator.lifecycle.ports import GangRef
from orchestrator.lifecycle.reconciler import Reconciler
from orchestrator.lifecycle.states import JobState
from orchestrator.spec.job import JobSpec
from orchestrator.store import events, jobs, leases, metrics
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from orchestrator.store.tables import Event, Placement
from tests.actors.conftest import running_cluster, wait_for
from tests.actors.test_exactness import differing, weights

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]

STEPS = 60
SPEC = {
    "name": "spare",
    "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64},
    "parallelism": {"tp": 2, "pp": 2, "microbatches": 2},
    "training": {"steps": STEPS, "global_batch": 4, "sequence_length": 32, "eval_sequences": 2},
    "checkpoint": {"every": 4, "keep": 2},
}


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One leaf of three nodes of two slots; the job takes two of them."""
    with running_cluster("1x3x2", tmp_path_factory.mktemp("spare")) as cluster:
        yield cluster


class Controller:
    """A leader on a database of its own, round by round."""

    def __init__(self, launcher: RayLauncher, directory: Path) -> None:
        url = f"sqlite:///{directory / 'atoll.db'}"
        upgrade(url)
        self.database: Database = open_database(url)
        self.directory = directory
        with self.database.write() as session:
            token = leases.acquire(
                session, "test", now=datetime.now(UTC), ttl=timedelta(days=1), endpoint=None
            )
        assert token is not None
        self._reconciler = Reconciler(
            self.database,
            launcher,
            token=token,
            storage_directory=directory,
            executor=ThreadPoolExecutor(4),
            clock=lambda: datetime.now(UTC),
        )

    def submit(self, document: dict[str, Any]) -> str:
        with self.database.write() as session:
            return jobs.insert(session, JobSpec.model_validate(document), now=datetime.now(UTC)).job.id

    def until(self, condition: Callable[[], Any], what: str, job_id: str) -> Any:
        def look() -> Any:
            self._reconciler.round()
            return condition()

        told = [(event.kind, event.message) for event in self.events(job_id)]
        return wait_for(look, f"{what}; {told}", 240.0)

    def state(self, job_id: str) -> JobState:
        with self.database.read() as session:
            return JobState(jobs.get(session, job_id).state)

    def is_over(self, job_id: str) -> bool:
        """It has ended, and its slots are free."""
        return self.state(job_id).is_terminal and self.placements(job_id)[-1].released_at is not None

    def step(self, job_id: str) -> int:
        with self.database.read() as session:
            return jobs.get(session, job_id).step

    def events(self, job_id: str) -> list[Event]:
        with self.database.read() as session:
            return list(events.after(session, job_id, limit=10_000))

    def kinds(self, job_id: str) -> set[str]:
        return {event.kind for event in self.events(job_id)}

    def placements(self, job_id: str) -> list[Placement]:
        with self.database.read() as session:
            query = select(Placement).where(Placement.job_id == job_id).order_by(Placement.incarnation)
            return list(session.scalars(query))

    def losses(self, job_id: str) -> dict[int, float | None]:
        """By step, as it was trained last."""
        with self.database.read() as session:
            return {row.step: row.loss for row in metrics.after(session, job_id, limit=10_000)}


def agent(job_id: str, node: str) -> AgentFacts:
    import ray

    name = naming.agent_name(GangRef(job_id, 1), node, 0)
    facts: AgentFacts = ray.get(ray.get_actor(name, NAMESPACE).open.remote(), timeout=60)
    return facts


def test_rows_8_and_44_the_spare_takes_over_from_the_node_of_rank_0(
    three_nodes: LocalCluster, connect: Callable[[LocalCluster], RayLauncher], tmp_path: Path
) -> None:
    controller = Controller(connect(three_nodes), tmp_path)
    untouched = controller.submit(SPEC)
    controller.until(lambda: controller.is_over(untouched), "the first job ends", untouched)
    assert controller.state(untouched) is JobState.SUCCEEDED

    job_id = controller.submit({**SPEC, "name": "broken"})
    controller.until(lambda: controller.step(job_id) >= 5, "five steps are done", job_id)
    (before,) = controller.placements(job_id)
    lost, kept = before.slots[0][0], before.slots[2][0]
    (spare,) = {"l0n0", "l0n1", "l0n2"} - {lost, kept}
    survivor = agent(job_id, kept)
    killed_at = time.time()
    os.kill(three_nodes.raylets[lost], signal.SIGKILL)
    controller.until(lambda: "repaired" in controller.kinds(job_id), "the job is repaired", job_id)
    assert agent(job_id, kept) == survivor, "its agent and zygote stayed"
    controller.until(lambda: controller.is_over(job_id), "the second job ends", job_id)
    told = {event.kind: event for event in controller.events(job_id)}
    assert controller.state(job_id) is JobState.SUCCEEDED, told["state-changed"].message

    (after,) = controller.placements(job_id)
    assert after.revision == 1
    assert after.slots == [[spare if node == lost else node, index] for node, index in before.slots]
    assert after.certified
    assert [facts["node"] for facts in after.ranks] == [node for node, _ in after.slots]
    certificates = [event for event in controller.events(job_id) if event.kind == "certified"]
    assert [event.data["ok"] for event in certificates] == [True, True]
    assert told["repair-started"].data["rung"] == "spare"
    assert told["repair-started"].data["passed_over"] == [f"in-place: node {lost} is lost"]
    repaired = told["repaired"]
    assert repaired.data["rungs"] == ["spare"]
    assert 0 < repaired.data["ready_s"] <= repaired.data["seconds"] < time.time() - killed_at
    mine, theirs = controller.losses(job_id), controller.losses(untouched)
    untold = (
        theirs.keys() - mine.keys()
    )  # saved by the checkpoint, but the node died before it had told of them
    assert mine == {step: loss for step, loss in theirs.items() if step not in untold}
    assert max(untold, default=0) <= told["resumed"].data["step"]
    final = [weights(tmp_path / one, STEPS) for one in (untouched, job_id)]
    assert differing(*final) == []


def test_with_leave_one_replica_does_the_whole_batch(
    connect: Callable[[LocalCluster], RayLauncher], tmp_path: Path
) -> None:
    """tp 2 x dp 2 on both nodes there are, in fp64: the weights are those of the whole job to 1e-9."""
    plan = {"tp": 2, "dp": 2, "microbatches": 1}
    training = {**SPEC["training"], "precision": "fp64"}
    spec = {**SPEC, "parallelism": plan, "training": training, "recovery": {"min_dp": 1}}
    (tmp_path / "cluster").mkdir()
    with running_cluster("1x2x2", tmp_path / "cluster") as cluster:
        controller = Controller(connect(cluster), tmp_path)
        untouched = controller.submit(spec)
        controller.until(lambda: controller.is_over(untouched), "the first job ends", untouched)
        job_id = controller.submit({**spec, "name": "fewer"})
        controller.until(lambda: controller.step(job_id) >= 5, "five steps are done", job_id)
        (before,) = controller.placements(job_id)
        os.kill(cluster.raylets[before.slots[0][0]], signal.SIGKILL)
        controller.until(lambda: controller.is_over(job_id), "the second job ends", job_id)
    told = {event.kind: event for event in controller.events(job_id)}
    assert controller.state(job_id) is JobState.SUCCEEDED, told["state-changed"].message
    (after,) = controller.placements(job_id)
    assert (after.replicas, after.slots, after.certified) == (1, before.slots[2:], True)
    assert told["repaired"].data["rungs"] == ["fewer-replicas"]
    one, other = (weights(tmp_path / job, STEPS) for job in (untouched, job_id))
    apart = one.keys() ^ other.keys()
    assert all(name.startswith("/rank_rng/") for name in apart), "dropped ranks had generators of their own"
    floats = [
        name for name, value in other.items() if isinstance(value, torch.Tensor) and value.is_floating_point()
    ]
    assert len(floats) > 10
    assert max(float((one[name] - other[name]).abs().max()) for name in floats) < 1e-9
