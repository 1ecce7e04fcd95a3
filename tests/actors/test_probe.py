"""`atoll fabric probe` on an emulated network whose links are known, and on the loopback of a local cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from actors import probe
from actors.launcher import RayLauncher
from actors.local_cluster import LocalCluster
from actors.probe import free_indexes
from benchmarks.fabric.cluster import ROOT, Cluster
from benchmarks.fabric.network import GOODPUT, Network, Wiring, why_not
from orchestrator.spec.sections import Tier
from orchestrator.topology.fabric import Node, Slot
from orchestrator.topology.probe.rounds import Pair, Round
from orchestrator.topology.read import FabricFile, read_fabric

WIRING = Wiring(leaves=2, nodes=3, node_mbit=80, uplink_mbit=20)
DEADLINE_S = 280.0


def bytes_per_s(mbit: float) -> float:
    return mbit * 1e6 / 8 * GOODPUT


@pytest.fixture(scope="module")
def emulated() -> Iterator[tuple[Network, Cluster]]:
    if reason := why_not():
        pytest.skip(f"no emulated network here: {reason}")
    with Network(WIRING) as network, Cluster(network, 2) as cluster:
        yield network, cluster


def probed(network: Network, cluster: Cluster, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "atoll", "fabric", "probe", "--ray-address", cluster.address, "--json"]
    done = subprocess.run(
        network.inside("head", [*command, *arguments]),
        env=cluster.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
def test_links_that_are_known_are_measured_and_a_bad_one_is_marked(
    emulated: tuple[Network, Cluster], tmp_path: Path
) -> None:
    """Rates within a third: a busy machine is slower, and a token bucket lets its burst pass at once."""
    network, cluster = emulated
    network.shape_node("l1n2", 24)
    declared = tmp_path / "declared.yaml"
    declared.write_text(
        "nodes: [{name: 'l0n[0-2]', leaf: l0}, {name: 'l1n[0-2]', leaf: l1}]\n"
        f"links: {{leaf: {{kind: veth, bandwidth_bytes_per_s: {bytes_per_s(80)}}}}}\n"
    )
    output = tmp_path / "measured.yaml"
    found = probed(network, cluster, str(declared), "--seconds", "1", "--out", str(output))
    tiers = {tier["tier"]: tier for tier in found["tiers"]}
    assert set(tiers) == {"island", "leaf", "spine"}
    assert tiers["leaf"]["bandwidth_bytes_per_s"] == pytest.approx(bytes_per_s(80), rel=0.33)
    assert tiers["spine"]["bandwidth_bytes_per_s"] == pytest.approx(bytes_per_s(20), rel=0.33)
    assert tiers["spine"]["uplink_bytes_per_s"] == pytest.approx(bytes_per_s(20), rel=0.33)
    assert tiers["island"]["bandwidth_bytes_per_s"] > 3 * tiers["leaf"]["bandwidth_bytes_per_s"]
    assert all(0 < tier["latency_s"] < 1 for tier in tiers.values())
    assert [(bad["tier"], bad["where"]) for bad in found["bad"]] == [("leaf", "node l1n2")]
    assert found["skipped"] == {}
    assert not any(one["error"] for one in found["measurements"])
    read = read_fabric([FabricFile.parse(str(output))]).fabric
    assert [node.name for node in read.nodes if node.suspect] == ["l1n2"]
    assert read.links[Tier.SPINE].uplink == pytest.approx(tiers["spine"]["uplink_bytes_per_s"])
    assert read.links[Tier.LEAF].kind == "veth"


@pytest.mark.slow
def test_a_node_that_cannot_be_reached_is_told_and_the_others_are_measured(
    emulated: tuple[Network, Cluster], tmp_path: Path
) -> None:
    """Its accelerators are held by somebody else."""
    network, cluster = emulated
    held = (
        "import sys; from actors import ray_environment; ray_environment.connect(sys.argv[1], local=True)\n"
        "import ray; from ray.util.placement_group import placement_group\n"
        "ray.get(placement_group([{'gpu0': 1, 'gpu1': 1}], bundle_label_selector=[{'host': 'l0n0'}]).ready())\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = network.inside("head", [sys.executable, "-c", held, cluster.address])
    holder = subprocess.Popen(
        command, env=cluster.environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        found = probed(network, cluster, "--rounds", "1", "--seconds", "0.2")
    finally:
        holder.communicate("")
    assert found["skipped"] == {"l0n0": "all its accelerators are in use"}
    assert "l0n0" not in {one[end]["node"] for one in found["measurements"] for end in ("a", "b")}
    assert found["tiers"]


def test_over_loopback(local_cluster: LocalCluster) -> None:
    command = [
        sys.executable,
        "-m",
        "atoll",
        "fabric",
        "probe",
        "--ray-address",
        local_cluster.address,
        "--json",
    ]
    done = subprocess.run(
        [*command, "--rounds", "1", "--seconds", "0.1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["tiers"]
    assert [one["error"] for one in found["measurements"] if one["error"]] == []
    assert all(one["a_to_b_bytes_per_s"] > 1e6 for one in found["measurements"])


@pytest.mark.slow
def test_an_end_that_hangs_costs_a_deadline_and_its_pair(
    launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process is stopped: its pair is told of, the other pair measures, and the next round has both again."""
    monkeypatch.setattr(probe, "PROBE_MEET_S", 6.0)
    monkeypatch.setattr(probe, "CONTROL_CALL_S", 6.0)
    skipped: dict[str, str] = {}
    crew = probe._Crew.start(launcher.fabric(), skipped, print)
    try:
        hung = Slot("l0n0", 0)
        pairs = (Pair(hung, Slot("l0n1", 0)), Pair(Slot("l1n0", 0), Slot("l1n1", 0)))
        os.kill(ray.get(crew.actors[hung].__ray_call__.remote(lambda _: os.getpid())), signal.SIGSTOP)
        first = {m.pair: m for m in crew.play(Round(Tier.LEAF, pairs), 0, 0.1)}
        assert first[pairs[0]].error == "no answer within 6 s"
        assert first[pairs[1]].error is None
        assert first[pairs[1]].worse > 0
        again = crew.play(Round(Tier.LEAF, pairs), 1, 0.1)
        assert [m.error for m in again] == [None, None]
        assert skipped == {}
    finally:
        crew.end()


def test_accelerators_that_somebody_holds_or_that_are_cut_do_not_measure() -> None:
    node = Node("n", 4, partitioned=frozenset({0}))
    has = {"GPU": 4.0, **{f"gpu{i}": 1.0 for i in range(4)}}
    assert free_indexes(node, has, has) == [1, 2]
    assert free_indexes(node, has, {**has, "gpu1": 0.0, "GPU": 3.0}) == [2, 3]
    assert free_indexes(node, has, {**has, "GPU": 1.0}) == [1]
    assert free_indexes(node, has, {}) == []
    assert free_indexes(Node("n", 2), {"CPU": 8.0}, {"CPU": 8.0}) == [
        0,
        1,
    ]  # no unit resources: nothing to hold
