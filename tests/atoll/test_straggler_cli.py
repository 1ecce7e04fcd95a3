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
    assert list(answer)[:3] == ["stragglers", "imbalance", "healthy"]
    assert answer["healthy"] is False
    assert answer["imbalance"] == []
    (found,) = answer["stragglers"]
    assert list(found)[:7] == ["rank", "kind", "from_step", "to_step", "factor", "cost_s", "confidence"]
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


PHASES = "step,rank,dp_rank,stage,fwd_s,bwd_s,recv_s,send_s,coll_s,gc_s,wall_s"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "line 1: the file is empty"),
        (b"step,rank,step_time\n", "line 2: no measurements"),
        (b"step,rank\n1,0\n", "line 1: missing columns dp_rank, stage, fwd_s"),
        (f"{PHASES}\n1,0,0,0,1,1,0,0,,0,2\n".encode(), "line 2, coll_s: '' is not a finite number"),
        (f"{PHASES}\n1,0,0,0,1,NaN,0,0,0,0,2\n".encode(), "line 2, bwd_s: 'NaN' is not a finite number"),
        (
            f"{PHASES}\n1,0,0,0,1,-1,0,0,0,0,2\n".encode(),
            "line 2, bwd_s: '-1' is not a finite number, 0 or more",
        ),
        (b"step,rank,step_time\n" + b"".join(b"%d,3,1\n" % s for s in range(9)), "column rank: only 1 rank"),
        (b"step,rank,step_time\n1,0,1\n1,1,1\n", "column step: 1 step: at least 4"),
        (
            b"step,rank,step_time\n"
            + b"".join(b"%d,%d,1\n" % (s, r) for s in range(9) for r in (0, 1))
            + b"3,1,1\n",
            "line 20, step: rank 1 has step 3 already in line 9",
        ),
        (b"\x7fELF\x02\x01\x00\x00\xff\xfe", "line 1: no header of a CSV file"),
        (b'{"steps": [1, 2]}\n', "line 1: missing columns step, rank"),
        (b"step,rank,step_time\n1,0,\xff\n", "line 2, step_time: '\\udcff' is not"),
        (b"step,rank,step_time\n" + b"1" * 200_000, "line 2: longer than 65536 characters"),
        (b"step;rank;step_time\n1;0;1\n", "line 1: missing columns step, rank"),
    ],
)
def test_each_odd_file_is_one_clear_error_and_exit_code_2(
    content: bytes,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(content)
    assert run(monkeypatch, str(path), "--json") == 2
    heard = capsys.readouterr()
    assert heard.out == ""
    assert f"{path}: {said}" in heard.err.replace("\n  ", " ")


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_cannot_be_opened_is_exit_code_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(tmp_path / name)) == 2
    assert str(tmp_path) in capsys.readouterr().err
