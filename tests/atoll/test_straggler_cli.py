"""`atoll straggler`: output, exit codes and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["atoll", "straggler", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Rank 1 of 4 takes half as long again, in all of 20 steps."""
    path = tmp_path / "run.csv"
    rows = [f"{s},{r},{1.5 if r == 1 else 1.0}" for s in range(20) for r in range(4)]
    path.write_text("\n".join(["step,rank,step_time", *rows]))
    return path


def test_json_has_the_documented_keys(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(recording), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() >= {"stragglers", "imbalance", "healthy"}
    assert answer["healthy"] is False
    (found,) = answer["stragglers"]
    wanted = {"rank": 1, "kind": "constant", "from_step": 0, "to_step": 19, "factor": 1.5, "cost_s": 10.0}
    assert found.items() >= wanted.items()
    assert 0 < found["confidence"] <= 1


def test_people_see_the_rank_and_why(
    recording: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(recording)) == 0
    said = capsys.readouterr().out
    assert "4 ranks, 20 steps: 1 slow rank" in said
    assert "computes 1.50 times as long as its peers" in said


def test_wrong_input_is_exit_code_2_with_all_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.csv"
    path.write_text("step,rank,step_time\n1,0,nan\n1,x,1\n")
    assert run(monkeypatch, str(path)) == 2
    said = capsys.readouterr().err
    assert "line 2, step_time: 'nan' is not a finite number" in said
    assert "line 3, rank: 'x' is not a whole number" in said


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_cannot_be_opened_is_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(tmp_path / name)) == 2
    assert str(tmp_path) in capsys.readouterr().err
