"""`atoll simulate` and `atoll snapshot`, from the command line to the numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.placement.placement import Placement
from orchestrator.simulate.snapshot import fabric_of, read_snapshot
from orchestrator.spec import parse_spec
from orchestrator.spec.sections import Tier
from orchestrator.store import jobs, nodes, placements
from orchestrator.topology.fabric import Fabric, Node, Slot
from orchestrator.topology.links import Link
from tests.atoll.conftest import NOW

Atoll = Callable[..., Any]

FABRIC = """
nodes:
  - {name: "a[0-2]", accelerators: 8, island: "{name}", leaf: l0}
  - {name: b0, accelerators: 8, island: "{name}", leaf: l1}
"""
TRACE = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:00:00,3600,16,57600,x
2017-10-09 07:00:01,3600,24,86400,x
2017-10-09 07:00:02,600,8,4800,y
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "fabric.yaml").write_text(FABRIC)
    (tmp_path / "trace.csv").write_text(TRACE)
    return ("simulate", "--fabric", str(tmp_path / "fabric.yaml"), "--trace", str(tmp_path / "trace.csv"))


def test_a_trace(atoll: Atoll, files: tuple[str, ...]) -> None:
    """Pipelines of 16 and of 24 fit under leaf l0 alone, and not at once: the second waits for an hour. The job of 8
    passes it."""
    ran = atoll(*files, "--start-s", "0", "--json")
    assert ran.code == 0
    report = json.loads(ran.out)
    assert (report["jobs"], report["accelerators"], report["states"]) == (3, 32, {"succeeded": 3})
    assert [o["waited_s"] for o in report["outcomes"]] == [0.0, 3599.0, 0.0]
    assert (report["tally"]["pipelines"], report["cross_leaf_share"]) == (2, 0.0)
    again = atoll(*files, "--start-s", "0", "--json")
    assert again.out == ran.out
    ran = atoll(*files, "--policy", "fifo")
    assert ran.code == 0
    assert "3 jobs on 32 accelerators, policy fifo: 3 succeeded" in ran.out


def test_a_fabric_of_another_format(atoll: Atoll, files: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "blocks.conf").write_text("BlockName=b1 Nodes=n[1-4]\nNodeName=n[1-4] Gres=gpu:h100:8\n")
    ran = atoll("simulate", "--fabric", str(tmp_path / "blocks.conf"), *files[3:], "--json")
    assert (ran.code, json.loads(ran.out)["accelerators"]) == (0, 32)


def test_a_fabric_without_accelerators_is_refused(
    atoll: Atoll, files: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "topology.conf").write_text("SwitchName=l1 Nodes=n[1-4]\n")
    ran = atoll("simulate", "--fabric", str(tmp_path / "topology.conf"), *files[3:])
    assert ran.code == 2
    assert "topology.conf: says of no node how many accelerators it has" in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policy", "nothing"), "nothing: cannot be read"),
        (("--without", "leaf=l9"), "--without the fabric has no leaf l9; there are: l0, l1"),
        (("--faults", "none.json"), "none.json cannot be read"),
        (("--trace", "none.csv"), "none.csv cannot be read"),
    ],
)
def test_files_that_cannot_be_taken(
    atoll: Atoll, files: tuple[str, ...], arguments: tuple[str, ...], told: str
) -> None:
    ran = atoll(*files, *arguments)
    assert ran.code == 2
    assert told in ran.err


def test_a_trace_needs_a_fabric(atoll: Atoll, files: tuple[str, ...]) -> None:
    ran = atoll("simulate", *files[-2:])
    assert ran.code == 2
    assert "says nothing of a fabric: give one (--fabric FILE)" in ran.err


def test_a_snapshot_gives_the_fabric_that_was_seen(server: Any, atoll: Atoll, tmp_path: Path) -> None:
    whole = Node(
        "n10",
        4,
        {Tier.ISLAND: "n10", Tier.LEAF: "l0"},
        accelerator="H100",
        suspect=True,
        cpus=64.0,
        rails={0: ("mlx5_0", "mlx5_1"), 3: ("mlx5_2",)},
        weak_pairs=frozenset({(0, 1), (2, 3)}),
        partitioned=frozenset({3}),
    )
    pairs = Node("n9", 2, {Tier.LEAF: "l0"}, {0: "a", 1: "b"}, schedulable=False)
    links = {
        Tier.ISLAND: Link("nvlink4", 400e9, 3e-6, None, measured=True),
        Tier.ANY: Link(uplink=1e10),
    }
    seen = Fabric((pairs, whole), links)
    with server.database.write() as session:
        nodes.observe(session, seen, now=NOW)
    out = tmp_path / "snapshot.json"
    assert atoll("snapshot", "--out", str(out)).code == 0
    assert fabric_of(read_snapshot(out.read_text(), origin="snapshot.json")) == seen


def test_a_snapshot_of_before_links_were_kept_is_read() -> None:
    """As `atoll snapshot` wrote it then."""
    node = {
        "name": "n0",
        "accelerators": 2,
        "domains": {"leaf": "l0"},
        "islands": {},
        "accelerator": None,
        "alive": True,
        "schedulable": True,
        "cpus": None,
    }
    old = {
        "format": "atoll-snapshot-1",
        "at": "2026-05-04T00:00:00Z",
        "fabric": {"nodes": [node]},
        "jobs": [],
    }
    assert fabric_of(read_snapshot(json.dumps(old), origin="old.json")) == Fabric(
        (Node("n0", 2, {Tier.LEAF: "l0"}),)
    )


def test_a_snapshot_and_what_if_a_leaf_dies(server: Any, atoll: Atoll, tmp_path: Path) -> None:
    """One job of four ranks runs on leaf l0 with 20 of 100 steps done. Without l0 it goes to l1."""
    size = {"global_batch": 16, "sequence_length": 128}
    spec = parse_spec(
        {"name": "runs", "parallelism": {"dp": 4}, "training": {"steps": 100, **size}, "recovery": {}}
    )
    fabric = Fabric(
        tuple(Node(f"{leaf}n{i}", 2, {Tier.LEAF: leaf}) for leaf in ("l0", "l1") for i in range(2))
    )
    slots = tuple(Slot(f"l0n{i}", index) for i in range(2) for index in range(2))
    with server.database.write() as session:
        nodes.observe(session, fabric, now=NOW)
        runs = jobs.insert(session, spec, now=NOW).job.id
        placements.insert(
            session,
            runs,
            1,
            Placement(slots, ()),
            fabric,
            first_attempt=1,
            restarts_used=0,
            deaths_at_step=(0, 0),
            now=NOW + timedelta(seconds=5),
        )
        jobs.set_state(session, runs, JobState.RUNNING, Reason.NONE, "", now=NOW)
        jobs.summarise(session, runs, {"step": 20, "tokens_per_s": 16 * 128 / 2.0, "incarnation": 1})
    out = tmp_path / "snapshot.json"
    assert atoll("snapshot", "--out", str(out)).code == 0
    taken = json.loads(out.read_text())
    (job,) = [job for job in taken["jobs"] if job["id"] == runs]
    assert (job["step"], job["step_s"]) == (20, 2.0)
    assert job["slots"] == [[slot.node, slot.index] for slot in slots]

    def outcome(*more: str) -> dict[str, Any]:
        ran = atoll(
            "simulate", "--trace", str(out), "--start-s", "30", "--checkpoint-every-s", "0", "--json", *more
        )
        assert ran.code == 0, ran.err
        return next(o for o in json.loads(ran.out)["outcomes"] if o["job_id"] == runs)

    as_it_is, without = outcome(), outcome("--without", "leaf=l0")
    assert (as_it_is["state"], as_it_is["nodes"], as_it_is["placements"]) == (
        "succeeded",
        ["l0n0", "l0n1"],
        1,
    )
    assert (without["state"], without["nodes"], without["placements"]) == ("succeeded", ["l1n0", "l1n1"], 2)
    outages = tmp_path / "outages.yaml"
    outages.write_text("- {down: leaf=l0, for_s: 60}\n- {down: leaf=l1}\n")
    back = outcome("--faults", str(outages))
    assert (back["state"], back["nodes"], back["placements"]) == ("succeeded", ["l0n0", "l0n1"], 2)
    assert back["completed_s"] - without["completed_s"] == pytest.approx(60.0)
    # It has no checkpoint: its 20 steps of 2 s are lost, and there is another start-up of 30 s.
    assert without["completed_s"] - as_it_is["completed_s"] == pytest.approx(70.0)
    ran = atoll("simulate", "--trace", str(out), "--without", "leaf=l0", "--without", "leaf=l1")
    assert ran.code == 0
    assert "recovering" in ran.out or "queued" in ran.out
