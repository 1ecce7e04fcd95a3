"""`atoll plan --fabric`: no server is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
    assert "memory of the fullest rank, GiB: parameters" in ran.out
    assert "checkpoint every" in ran.out
    assert "island: link unknown, taken as nvlink4, usual for H100-SXM" in ran.out


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
