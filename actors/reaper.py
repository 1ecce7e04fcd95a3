"""Ending whatever is left of a gang, from outside: for a supervisor that is dead, stuck, or has told its report.

The supervisor goes first, so that it starts nothing more. An agent is asked to end its ranks and returns when they are
gone; one that cannot answer is killed, and the kernel ends its zygote and ranks.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from actors import naming
from actors.ray_environment import NAMESPACE
from orchestrator.lifecycle.ports import GangRef
from orchestrator.recovery.timeouts import AGENT_END_S, REAP_S

PAUSE_S = 0.1
"""Between two looks at something that Ray does in its own time."""


def named_actors() -> list[str]:
    """Names of Atoll's living actors."""
    from ray.util import list_named_actors

    return [
        actor["name"] for actor in list_named_actors(all_namespaces=True) if actor["namespace"] == NAMESPACE
    ]


def placement_groups() -> list[dict[str, Any]]:
    """Placement groups that hold or wait for anything."""
    from ray.util.placement_group import placement_group_table

    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def reap(gang: GangRef) -> bool:
    """Ends supervisor and agents, gives the reservation back; True when nothing is left and Ray counts it all free."""
    deadline = time.monotonic() + REAP_S
    slots = _reserved(gang)
    _end_actors(gang)
    _remove_groups(gang)
    while time.monotonic() < deadline:
        names = [name for name in named_actors() if naming.gang_of(name) == gang]
        groups = [group for group in placement_groups() if naming.gang_of(group["name"]) == gang]
        if not names and not groups and _free(slots):
            return True
        if names:
            _end_actors(gang)
        if groups:  # one that was being made while its supervisor ended
            _remove_groups(gang)
        time.sleep(PAUSE_S)
    return False


def _end_actors(gang: GangRef) -> None:
    import ray
    from ray.exceptions import RayError

    names = [name for name in named_actors() if naming.gang_of(name) == gang]
    actors = []
    for name in sorted(names, key=naming.is_agent):
        try:
            actors.append((name, ray.get_actor(name, NAMESPACE)))
        except ValueError:
            continue  # gone meanwhile
    asked: list[Any] = []
    for name, actor in actors:
        if naming.is_agent(name):
            asked.append(actor.shutdown.remote())
        else:
            ray.kill(actor, no_restart=True)
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=AGENT_END_S)
    for name, actor in actors:
        if naming.is_agent(name):
            try:
                ray.kill(actor, no_restart=True)
            except RayError:
                continue


def _remove_groups(gang: GangRef) -> None:
    from ray import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    for group in placement_groups():
        if naming.gang_of(group["name"]) == gang:
            identity = PlacementGroupID(bytes.fromhex(group["placement_group_id"]))
            remove_placement_group(PlacementGroup(identity))


def _reserved(gang: GangRef) -> list[tuple[str, str]]:
    """(Ray node id, resource) of every unit resource a gang's placement groups hold."""
    held = []
    for group in placement_groups():
        if naming.gang_of(group["name"]) != gang:
            continue
        for index, bundle in group["bundles"].items():
            node = group["bundles_to_node_id"].get(index, "")
            held += [(node, resource) for resource in bundle if resource.startswith("gpu")]
    return held


def _free(slots: Iterable[tuple[str, str]]) -> bool:
    """Whether Ray counts all these unit resources free again; those of dead nodes are nobody's."""
    from ray._private.state import available_resources_per_node

    available = available_resources_per_node()  # type: ignore[no-untyped-call]
    return all(available[node].get(resource, 0.0) >= 1.0 for node, resource in slots if node in available)
