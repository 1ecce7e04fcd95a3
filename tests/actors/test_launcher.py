"""Where supervisors live."""

from __future__ import annotations

from typing import Any

import pytest

from actors import ray_nodes
from actors.launcher import RayLauncher, _away_from

pytestmark = pytest.mark.timeout(600)
ACTORS = 4
"""A placement that ignores what is asked for finds the one node of five this often in 1 of 600 runs."""


class Resident:
    def node(self) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())


def homes(count: int, **options: Any) -> list[str]:
    """Nodes on which Ray puts that many actors like a supervisor."""
    import ray

    residents = [ray.remote(Resident).options(num_cpus=0, **options).remote() for _ in range(count)]
    found: list[str] = ray.get([resident.node.remote() for resident in residents], timeout=300)
    for resident in residents:
        ray.kill(resident)
    return found


def test_a_supervisor_lives_on_the_node_without_accelerators(launcher: RayLauncher) -> None:
    (head,) = [node["NodeID"] for node in ray_nodes.nodes() if "host" not in node["Labels"]]
    assert homes(ACTORS, **_away_from(["l0n0", "l1n0"])) == [head] * ACTORS


def test_a_supervisor_lives_elsewhere_when_that_node_is_gone(launcher: RayLauncher) -> None:
    options = _away_from(["l0n0"])
    options["label_selector"] = dict.fromkeys(options["label_selector"], "f" * 56)
    assert homes(1, **options)[0] in {node["NodeID"] for node in ray_nodes.nodes()}
