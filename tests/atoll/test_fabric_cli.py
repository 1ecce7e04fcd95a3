"""`atoll fabric show` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.atoll.conftest import Ran

Atoll = Callable[..., Ran]

TREE = "SwitchName=s0 Switches=l[0-1]\nSwitchName=l0 Nodes=n[0-1]\nSwitchName=l1 Nodes=n10\n"
PAIR = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV12\tPIX\nGPU1\tNV12\tX\tSYS\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_json_has_nodes_tiers_and_problems(atoll: Atoll, folder: Path) -> None:
    (folder / "a").write_text(TREE)
    (folder / "b").write_text(PAIR)
    ran = atoll("fabric", "show", "a", "n[0-1]=b", "--json")
    assert (ran.code, ran.err) == (0, "")
    shown = json.loads(ran.out)
    assert set(shown) >= {"nodes", "tiers", "problems"}
    assert [node["name"] for node in shown["nodes"]] == ["n0", "n1", "n10"]
    first = shown["nodes"][0]
    assert (first["gpus"], first["domains"]) == (2, {"island": "n0", "leaf": "l0", "spine": "s0"})
    assert first["rails"] == {"0": ["NIC0"], "1": ["NIC0"]}
    assert [(tier["tier"], tier["domains"], tier["kind"]) for tier in shown["tiers"]] == [
        ("island", 2, "nvlink"),
        ("leaf", 2, None),
        ("spine", 1, None),
    ]
    assert shown["problems"] == [
        {"file": "b", "line": 3, "message": "columns without rows, read from the rows of the GPUs: NIC0"}
    ]


def test_text_for_people(atoll: Atoll, folder: Path) -> None:
    (folder / "n7").write_text(PAIR.replace("\tNIC0", "").replace("\tPIX", "").replace("\tSYS", ""))
    ran = atoll("fabric", "show", "n7")
    assert ran.code == 0
    assert "1 node, 2 GPUs" in ran.out
    assert "island" in ran.out


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "error: x: is empty"), ("nonsense", "error: x: is plain text"), (TREE[:-3] + "[", "ends inside")],
)
def test_a_wrong_file_is_one_error_and_exit_code_2(atoll: Atoll, folder: Path, text: str, words: str) -> None:
    (folder / "x").write_text(text)
    ran = atoll("fabric", "show", "x", "--json")
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert ran.err.count("\n") == 1


def test_a_file_that_is_not_there(atoll: Atoll, folder: Path) -> None:
    ran = atoll("fabric", "show", "no.yaml")
    assert (ran.code, ran.err) == (2, "error: no.yaml: cannot be read: No such file or directory\n")


def test_a_directory_and_a_bad_host_list(atoll: Atoll, folder: Path) -> None:
    assert atoll("fabric", "show", ".").code == 2
    ran = atoll("fabric", "show", "n[1-=x")
    assert ran.code == 2
    assert "ends inside a bracket" in ran.err
    assert atoll("fabric", "show", f"n[1-2]={'x' * 5000}").code == 2


def test_no_file_at_all(atoll: Atoll) -> None:
    assert atoll("fabric", "show").code == 2


def test_a_probe_needs_a_cluster_that_answers(
    atoll: Atoll, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ran = atoll("fabric", "probe")
    assert ran.code == 2
    assert "say which cluster to measure: --ray-address HOST:PORT, or RAY_ADDRESS" in ran.err
    ran = atoll("fabric", "probe", "--ray-address", "127.0.0.1:1")
    assert ran.code == 3
    assert "no Ray cluster answers at 127.0.0.1:1" in ran.err
    ran = atoll("fabric", "probe", "--ray-address", "nowhere")
    assert ran.code == 2
    assert "--ray-address nowhere: expected HOST:PORT" in ran.err
    ran = atoll("fabric", "probe", "--ray-address", "127.0.0.1:1", "missing.conf")
    assert ran.code == 2
    assert "missing.conf" in ran.err


def test_help_tells_of_the_probe(atoll: Atoll) -> None:
    assert "probe" in atoll("fabric", "--help").out
    assert "--ray-address" in atoll("fabric", "probe", "--help").out
