"""`atoll plan --fabric`: no server is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store import nodes
from orchestrator.topology.fabric import Fabric
from orchestrator.topology.sources.yaml_file import fabric_from_yaml
from tests.atoll.conftest import NOW

FABRIC = """
nodes:
  - {name: "n[0-1]", accelerators: 8, accelerator: H100, island: "{name}", leaf: l0}
"""
JOB = """
name: planned
model: {layers: 8, hidden: 1024, heads: 8, kv_heads: 8, ffn_hidden: 2816}
training: {steps: 100, global_batch: 16, sequence_length: 1024, precision: bf16}
parallelism: {tp: 2, dp: 2}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    job, fabric = tmp_path / "job.yaml", tmp_path / "fabric.yaml"
    job.write_text(JOB)
    fabric.write_text(FABRIC)
    return str(job), str(fabric)


def test_place_and_cost(atoll: Any, files: tuple[str, str]) -> None:
    job, fabric = files
    ran = atoll("plan", job, "--fabric", fabric, "--checkpoint-stall", "2")
    assert ran.code == 0, ran.err
    assert "tp2 dp2, 4 ranks: fits when the fabric is empty" in ran.out
    assert "estimate on H100-SXM:" in ran.out
    assert "memory of the fullest rank: parameters" in ran.out
    assert "1,638,400 tokens in" in ran.out  # 100 steps of 16 sequences of 1024
    assert "checkpoint every" in ran.out
    assert "island: link unknown, taken as nvlink4, usual for H100-SXM" in ran.out


LINKED = (
    FABRIC.replace("n[0-1]", "n[0-11]").replace("leaf: l0", "leaf: l0, spine: s0")
    + """
  - {name: "x[0-3]", accelerators: 8, accelerator: H100, island: "{name}", leaf: l1, spine: s0, suspect: true}
  - {name: mig, accelerators: 8, accelerator: H100, island: mig, leaf: l1, spine: s0, partitioned: [0, 1]}
  - {name: weak, accelerators: 8, accelerator: H100, island: weak, leaf: l1, spine: s0, weak_pairs: [[0, 1]]}
links:
  island: {bandwidth_bytes_per_s: 100.0e+9, measured: true}
  leaf: {kind: ib-hdr, bandwidth_bytes_per_s: 25.0e+9, latency_s: 9.0e-6, uplink_bytes_per_s: 50.0e+9}
  spine: {bandwidth_bytes_per_s: 5.0e+9, uplink_bytes_per_s: 10.0e+9, measured: true}
"""
)


def test_the_server_answers_as_the_file_does(atoll: Any, server: Any, tmp_path: Path) -> None:
    """One fabric, once as the server has it in its database and once in a file: same places, same costs."""
    job, fabric = tmp_path / "job.yaml", tmp_path / "fabric.yaml"
    job.write_text(JOB.replace("{tp: 2, dp: 2}", "{tp: 4, dp: 16}"))
    fabric.write_text(LINKED)
    known = fabric_from_yaml(LINKED, origin="fabric.yaml")
    with server.database.write() as session:
        nodes.observe(session, known, now=NOW)

    def answer(*more: str) -> dict[str, Any]:
        ran = atoll("plan", str(job), "--json", *more)
        assert ran.code == 0, ran.err
        return dict(json.loads(ran.out))

    stored, filed = answer(), answer("--fabric", str(fabric))
    assert stored == filed
    assert stored["notes"] == []  # no link was taken for granted
    assert not {rank["node"] for rank in stored["ranks"]} & {"x0", "x1", "x2", "x3", "mig", "weak"}
    seconds = stored["estimate"]["seconds"]
    with server.database.write() as session:
        nodes.observe(session, Fabric(known.nodes), now=NOW)
    without = answer()
    assert without["estimate"]["seconds"] != seconds
    assert without["notes"]


def test_search(atoll: Any, files: tuple[str, str]) -> None:
    job, fabric = files
    ran = atoll("plan", job, "--fabric", fabric, "--auto", "--ranks", "8", "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["world_size"] == 4
    best = answer["search"]["best"]
    assert best
    for plan in best:
        assert plan["fits"]
        assert plan["memory_total_bytes"] <= plan["memory_limit_bytes"]
    said = atoll("plan", job, "--fabric", fabric, "--auto", "--ranks", "8").out
    assert f"fastest of {answer['search']['considered']:,} plans:" in said
    assert best[0]["plan"] in said


def test_what_does_not_fit_gives_1(atoll: Any, files: tuple[str, str], tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_text(JOB.replace("dp: 2", "dp: 16"))
    ran = atoll("plan", str(large), "--fabric", files[1])
    assert ran.code == 1
    assert "never fits this cluster" in ran.out
    huge = tmp_path / "huge.yaml"
    huge.write_text(JOB.replace("layers: 8, hidden: 1024", "layers: 200, hidden: 16384"))
    ran = atoll("plan", str(huge), "--fabric", files[1], "--auto", "--ranks", "2")
    assert ran.code == 1
    assert "none of" in ran.out


def test_wrong_files_give_2(atoll: Any, files: tuple[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("nodes: [{name: n0, acelerators: 8}]")
    ran = atoll("plan", files[0], "--fabric", str(wrong))
    assert ran.code == 2
    assert "acelerators" in ran.err
    assert atoll("plan", files[0], "--fabric", str(tmp_path / "none.yaml")).code == 2
    assert atoll("plan", files[0], "--fabric", files[1], "--ranks", "0").code == 2
    assert atoll("plan", files[0], "--fabric", files[1], "--ranks", "131073").code == 2


@pytest.mark.parametrize("option", ["--tokens", "--checkpoint-stall", "--gpu-hours-between-failures"])
def test_what_cannot_be_counted_gives_2(atoll: Any, files: tuple[str, str], option: str) -> None:
    asked = [] if option != "--gpu-hours-between-failures" else ["--checkpoint-stall", "1"]
    for value in ("inf", "nan", "1e308", "0", "-1"):
        ran = atoll("plan", files[0], "--fabric", files[1], *asked, option, value)
        assert ran.code == 2, value
        assert option in ran.err


def test_advice_where_failures_leave_no_time(atoll: Any, files: tuple[str, str]) -> None:
    """Four ranks that fail every 0.9 s and wait 1000 s for a checkpoint: Daly's share of time lost exceeds 1."""
    asked = ("--checkpoint-stall", "1000", "--gpu-hours-between-failures", "0.001")
    ran = atoll("plan", files[0], "--fabric", files[1], *asked)
    assert ran.code == 0
    assert "no progress: failures come too soon" in ran.out
    assert "% lost" not in ran.out


SWITCHES = """
SwitchName=s0 Switches=l[0-1]
SwitchName=l0 Nodes=n0
SwitchName=l1 Nodes=n1
"""


def test_a_fabric_without_accelerators_is_refused(atoll: Any, files: tuple[str, str], tmp_path: Path) -> None:
    """Slurm's switches say which nodes there are, not what is in them."""
    switches = tmp_path / "topology.conf"
    switches.write_text(SWITCHES)
    for more in ((), ("--auto",), ("--json",)):
        ran = atoll("plan", files[0], "--fabric", str(switches), *more)
        assert ran.code == 2
        assert ran.out == ""
        assert "topology.conf states no accelerators (2 nodes)" in ran.err
        assert "another --fabric" in ran.err


def test_files_complete_one_another(atoll: Any, files: tuple[str, str], tmp_path: Path) -> None:
    """The switches of one file, the accelerators of another."""
    switches, gpus = tmp_path / "topology.conf", tmp_path / "gpus.yaml"
    switches.write_text(SWITCHES)
    gpus.write_text('nodes: [{name: "n[0-1]", accelerators: 8, accelerator: H100, island: "{name}"}]')
    ran = atoll("plan", files[0], "--fabric", str(switches), "--fabric", str(gpus), "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["estimate"]["accelerator"] == "H100-SXM"
    assert {rank["leaf"] for rank in answer["ranks"]} <= {"l0", "l1"}
