"""Fabric files that are read again, and what happens when they cannot be taken any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.spec.sections import Tier
from orchestrator.topology.declared import DeclaredFabric, absolute, split_files
from orchestrator.topology.read import FabricFile
from orchestrator.topology.sources.reading import InvalidFabricError

SLURM = "SwitchName=l0 Nodes=n[0-1]\nSwitchName=l1 Nodes=n[2-3]\n"
OWN = "nodes:\n- {name: 'n[0-3]', accelerators: 8, accelerator: H100}\n"


def leaves(declared: DeclaredFabric) -> list[str | None]:
    return [node.domains.get(Tier.LEAF) for node in declared().fabric.nodes]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    switches, nodes = tmp_path / "topology.conf", tmp_path / "fabric.yaml"
    switches.write_text(SLURM)
    nodes.write_text(OWN)
    return switches, nodes


def declared(*files: Path) -> DeclaredFabric:
    return DeclaredFabric([FabricFile.parse(str(file)) for file in files])


def test_files_of_several_formats_complete_one_another(files: tuple[Path, Path]) -> None:
    found = declared(*files)
    assert leaves(found) == ["l0", "l0", "l1", "l1"]
    assert {node.accelerators for node in found().fabric.nodes} == {8}


def test_a_file_that_changes_is_read_again(files: tuple[Path, Path]) -> None:
    found = declared(*files)
    before = found()
    assert found() is before, "it is not read while nothing changes"
    files[0].write_text(SLURM.replace("l1", "other"))
    assert leaves(found) == ["l0", "l0", "other", "other"]


def test_the_last_good_fabric_stays_in_force(files: tuple[Path, Path]) -> None:
    found = declared(*files)
    files[0].write_text("")
    assert leaves(found) == ["l0", "l0", "l1", "l1"]
    assert found().problems[0] == f"{files[0]}: is empty. The fabric read before stays in force."
    files[0].unlink()
    assert leaves(found) == ["l0", "l0", "l1", "l1"]
    assert "cannot be read: No such file" in found().problems[0]
    files[0].write_text(SLURM.replace("l1", "new"))
    assert leaves(found) == ["l0", "l0", "new", "new"]
    assert found().problems == ()


def test_problems_name_file_and_line(files: tuple[Path, Path]) -> None:
    files[1].write_text(OWN + "- {name: n0, leaf: elsewhere}\n")
    with pytest.raises(InvalidFabricError, match="n0"):
        declared(*files)
    files[1].write_text(OWN.replace("accelerator: H100", "leaf: elsewhere"))
    problems = declared(*files)().problems
    assert problems
    assert all(problem.startswith(str(files[0].parent)) for problem in problems)


def test_files_that_give_no_fabric_at_first_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFabricError, match="cannot be read"):
        declared(tmp_path / "none.yaml")


def test_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_files("a.yaml:n[1-2]=b.txt:") == ["a.yaml", "n[1-2]=b.txt"]
    assert absolute("a.yaml") == f"{tmp_path}/a.yaml"
    assert absolute("n[1-2]=b.txt") == f"n[1-2]={tmp_path}/b.txt"
    assert absolute("/x/b.txt") == "/x/b.txt"
