"""A slow node is left: a spare takes over its ranks from a checkpoint made for it, the node is cordoned, and the losses
are those of a job that nothing touched.

The node is slow by what it really computes: the first rank on it does its forward four times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.launcher import RayLauncher
from actors.local_cluster import LocalCluster
from orchestrator.lifecycle.states import JobState
from orchestrator.store import cordons, jobs, nodes
from tests.actors.conftest import running_cluster
from tests.actors.test_exactness import differing, weights
from tests.actors.test_spare import Controller, agent

pytestmark = [pytest.mark.timeout(1200), pytest.mark.slow]

STEPS = 500
SLOW = "l0n1"


def job(name: str, slow_raylet: int | None, policy: str) -> dict[str, Any]:
    """Four replicas; as many steps as make it worth while."""
    options = {"slow_raylet": slow_raylet, "times": 3, "width": 96, "depth": 4, "head": 8, "positions": 64}
    return {
        "name": name,
        "model": {"import": "slow_model:build", "options": options},
        "parallelism": {"dp": 4},
        "training": {"steps": STEPS, "global_batch": 16, "sequence_length": 64, "eval_sequences": 2},
        "checkpoint": {"every": 0},
        "health": {"stragglers": policy},
    }


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One leaf of three nodes of two slots; the job takes two of them."""
    with running_cluster("1x3x2", tmp_path_factory.mktemp("replace")) as cluster:
        yield cluster


def test_a_slow_node_is_left_without_a_lost_step(
    three_nodes: LocalCluster, connect: Callable[[LocalCluster], RayLauncher], tmp_path: Path
) -> None:
    controller = Controller(connect(three_nodes), tmp_path)
    job_id = controller.submit(job("slow", three_nodes.raylets[SLOW], "replace"))
    controller.until(lambda: controller.step(job_id) >= 2, "two steps are done", job_id)
    (before,) = controller.placements(job_id)
    kept = next(node for node, _ in before.slots if node != SLOW)
    (spare,) = {"l0n0", "l0n1", "l0n2"} - {SLOW, kept}
    survivor = agent(job_id, kept)
    controller.until(
        lambda: "repaired" in controller.kinds(job_id) or controller.is_over(job_id),
        "the node is replaced",
        job_id,
    )
    assert agent(job_id, kept) == survivor, "its agent and zygote stayed"
    controller.until(lambda: controller.is_over(job_id), "the job ends", job_id)
    assert controller.state(job_id) is JobState.SUCCEEDED

    (after,) = controller.placements(job_id)
    assert after.slots == [[spare if node == SLOW else node, index] for node, index in before.slots]
    assert (after.revision, after.leaving, after.certified) == (1, [], True)
    told = {event.kind: event for event in reversed(controller.events(job_id))}  # the first of each kind
    assert told["straggler"].data["nodes"] == [SLOW]
    assert (told["moved"].data["rung"], told["moved"].data["cordoned"]) == ("spare", SLOW)
    assert told["repaired"].data["rungs"] == ["spare"]
    assert told["repaired"].data["planned"]
    assert told["repaired"].message.startswith("Replaced (spare): ")
    ended = told["attempt-ended"].data
    assert (ended["outcome"], ended["step"]) == ("made-way", told["resumed"].data["step"])
    with controller.database.read() as session:
        cordon = cordons.by_node(session)[SLOW]
        assert (cordon.who, cordon.reason.partition(": ")[0]) == ("atoll", "straggler")
        assert jobs.get(session, job_id).spent.get("hardware", 0) == 0, "nothing failed"
        assert [node.name for node in nodes.known_fabric(session).nodes if not node.schedulable] == [SLOW]

    untouched = controller.submit(job("untouched", None, "observe"))
    controller.until(lambda: controller.state(untouched).is_terminal, "the second job ends", untouched)
    assert controller.losses(job_id) == controller.losses(untouched)
    assert sorted(controller.losses(job_id)) == list(range(1, STEPS + 1))
    final = [weights(tmp_path / one, STEPS) for one in (untouched, job_id)]
    assert differing(*final) == []
