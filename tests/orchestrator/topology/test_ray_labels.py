"""Entries are of the form that `ray.nodes()` of Ray 2.60 answers."""

from __future__ import annotations

from typing import Any

from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Fabric, Node
from orchestrator.topology.sources.ray_labels import fabric_from_ray_nodes


def entry(
    number: int,
    *,
    alive: bool = True,
    gpus: int = 2,
    resources: dict[str, float] | None = None,
    **labels: str,
) -> dict[str, Any]:
    units = {f"gpu{index}": 1.0 for index in range(gpus)}
    return {
        "NodeID": f"{number:056x}",
        "Alive": alive,
        "NodeManagerAddress": "127.0.0.1",
        "Resources": {"CPU": 4.0, "memory": 1e9, "node:127.0.0.1": 1.0, **units}
        if resources is None
        else resources,
        "Labels": {"ray.io/node-id": f"{number:056x}", **labels},
    }


def test_labels_become_domains_and_unit_resources_accelerators() -> None:
    fabric = fabric_from_ray_nodes(
        [entry(1, host="n1", island="i1", leaf="l0", spine="s0", core="c0", accelerator="cpu")]
    )
    domains = {Tier.ISLAND: "i1", Tier.LEAF: "l0", Tier.SPINE: "s0", Tier.CORE: "c0"}
    assert fabric == Fabric((Node("n1", 2, domains, accelerator="cpu", cpus=4.0),))


def test_labels_that_are_missing_or_empty_stay_unknown() -> None:
    (node,) = fabric_from_ray_nodes([entry(1, host="n1", leaf="")]).nodes
    assert node.domains == {}
    assert node.accelerator is None


def test_a_node_without_host_label_goes_by_its_id() -> None:
    assert fabric_from_ray_nodes([entry(10)]).nodes[0].name == f"{10:056x}"


def test_a_head_without_accelerators_is_left_out() -> None:
    assert fabric_from_ray_nodes([entry(1, gpus=0, host="head"), entry(2, host="n0")]).nodes[0].name == "n0"


def test_real_gpus_count_where_no_unit_resources_are() -> None:
    nodes = fabric_from_ray_nodes([entry(1, resources={"CPU": 8.0, "GPU": 8.0}, host="n0")]).nodes
    assert nodes[0].accelerators == 8


def test_unit_resources_count_up_to_the_first_gap() -> None:
    (node,) = fabric_from_ray_nodes([entry(1, resources={"gpu0": 1, "gpu1": 1, "gpu3": 1}, host="n0")]).nodes
    assert node.accelerators == 2


def test_ray_names_the_type_where_the_operator_does_not() -> None:
    (node,) = fabric_from_ray_nodes([entry(1, host="n0", **{"ray.io/accelerator-type": "H100"})]).nodes
    assert node.accelerator == "H100"


def test_dead_nodes_are_kept_as_dead() -> None:
    (node,) = fabric_from_ray_nodes([entry(1, alive=False, resources={}, host="n0", leaf="l0")]).nodes
    assert (node.alive, node.accelerators, node.domains) == (False, 0, {Tier.LEAF: "l0"})


def test_a_living_node_replaces_a_dead_one_of_its_name() -> None:
    for order in ((1, 2), (2, 1)):
        entries = [entry(order[0], alive=False, resources={}, host="n0"), entry(order[1], host="n0")]
        (node,) = fabric_from_ray_nodes(entries).nodes
        assert (node.alive, node.accelerators) == (True, 2)


def test_two_living_nodes_of_one_name_take_no_work() -> None:
    (node,) = fabric_from_ray_nodes([entry(1, host="n0"), entry(2, host="n0")]).nodes
    assert node.alive
    assert not node.schedulable


def test_nodes_come_in_natural_order() -> None:
    names = ["n10", "n9", "n1"]
    fabric = fabric_from_ray_nodes([entry(i, host=name) for i, name in enumerate(names)])
    assert [node.name for node in fabric.nodes] == ["n1", "n9", "n10"]
