"""Files: what is read, and every way in which one is wrong."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from orchestrator.health.lines import RecordingError
from orchestrator.health.recording import judge, parse_recording, read_recording

PHASED = "step,rank,dp_rank,stage,fwd_s,bwd_s,recv_s,send_s,coll_s,gc_s,wall_s"


def whole(steps: int = 20, ranks: int = 4) -> list[str]:
    """Rank 1 takes twice as long as the others."""
    return [f"{s},{r},{2.0 if r == 1 else 1.0}" for s in range(steps) for r in range(ranks)]


def text(lines: list[str], header: str = "step,rank,step_time") -> io.StringIO:
    return io.StringIO("\n".join([header, *lines]) + "\n")


def problems(content: io.StringIO) -> tuple[str, ...]:
    with pytest.raises(RecordingError) as raised:
        parse_recording(content)
    return raised.value.problems


def test_lines_in_any_order_give_one_verdict() -> None:
    lines = whole()
    shuffled = lines.copy()
    random.Random(3).shuffle(shuffled)
    verdict = judge(parse_recording(text(lines)))
    assert [found.rank for found in verdict.stragglers] == [1]
    assert judge(parse_recording(text(shuffled))) == verdict


def test_gaps_in_steps_and_ranks_are_allowed() -> None:
    lines = [line for i, line in enumerate(whole(60)) if i % 9 != 4 and not 80 < i < 100]
    assert [found.rank for found in judge(parse_recording(text(lines))).stragglers] == [1]


def test_other_columns_a_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    lines = ["\ufeffgpu , step,rank,step_time", *(f"25,{line}" for line in whole()), "", " "]
    path = tmp_path / "run.csv"
    path.write_text("\r\n".join(lines), encoding="utf-8")
    recording = read_recording(path)
    assert (len(recording.layout), len(recording.rows)) == (4, 80)


def test_nodes_are_read() -> None:
    lines = [f"{line},{'a' if line.split(',')[1] in '01' else 'b'}" for line in whole()]
    recording = parse_recording(text(lines, "step,rank,step_time,node"))
    assert recording.layout.node == ("a", "a", "b", "b")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "line 1: the file is empty"),
        ("\n\n", "line 1: the file is empty"),
        ("step,rank,step_time\n", "line 2: no measurements below the header"),
        ("step,rank\n1,0\n", "line 1: missing columns dp_rank, stage, fwd_s"),
        ("rank,step_time\n0,1\n", "line 1: missing column step; needed are step,rank,dp_rank"),
        (f"{PHASED.replace(',bwd_s', '')}\n", "line 1: missing column bwd_s"),
        ("step,rank,step_time,rank\n", "line 1: column rank is there twice"),
        ("\n".join(["step,rank,step_time", *(f"{s},7,1" for s in range(9))]), "column rank: only 1 rank"),
        ("\n".join(["step,rank,step_time", *whole(3)]), "column step: 3 steps: at least 4"),
    ],
)
def test_a_file_that_says_too_little_is_one_clear_error(content: str, said: str) -> None:
    (problem,) = problems(io.StringIO(content))
    assert problem.startswith(said)


def test_all_bad_cells_are_named_at_once() -> None:
    lines = whole()
    lines[3], lines[5], lines[7] = "0,3,nan", "1,1.5,1", "-1,3,abc"
    lines[9], lines[11] = "2,1,inf", "2,3"
    assert set(problems(text(lines))) == {
        "line 5, step_time: 'nan' is not a finite number, 0 or more",
        "line 7, rank: '1.5' is not a whole number from 0",
        "line 9, step: '-1' is not a whole number from 0",
        "line 9, step_time: 'abc' is not a finite number, 0 or more",
        "line 11, step_time: 'inf' is not a finite number, 0 or more",
        "line 13: 2 cells where the header has 3",
    }


def test_a_thousand_bad_cells_are_cut_short() -> None:
    found = problems(text([line.replace(".0", ".x") for line in whole(250)]))
    assert len(found) == 21
    assert found[-1] == "and 980 more up to line 1001"


def test_a_step_that_comes_again_is_an_error_that_names_both_lines() -> None:
    lines = [*whole(), "3,2,1.0"]
    assert problems(text(lines)) == (
        "line 82, step: rank 2 has step 3 already in line 16; give a file for each attempt of the job",
    )


def test_a_rank_cannot_change_its_stage_or_node() -> None:
    row = "{},{},0,{},1,1,0,0,0,0,2"
    lines = [row.format(s, r, r if s < 5 else 0) for s in range(8) for r in range(2)]
    found = problems(text(lines, PHASED))
    assert found[0] == "line 13, stage: rank 1 is 0 here and 1 before"
    moved = [f"{line},{'a' if i < 40 else 'b'}" for i, line in enumerate(whole())]
    assert problems(text(moved, "step,rank,step_time,node"))[0].startswith(
        "line 42, node: rank 0 is 'b' here"
    )


def test_ranks_that_share_no_steps_are_refused_and_not_made_into_a_huge_table() -> None:
    (problem,) = problems(text([f"{i},{i},1.0" for i in range(20_000)]))
    assert problem.startswith("20000 ranks over 20000 steps share only 20000 lines")


def test_a_file_that_is_no_text_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "run.csv"
    path.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(RecordingError, match="line 1: no header of a CSV file in UTF-8"):
        read_recording(path)


def test_a_large_file_is_read(tmp_path: Path) -> None:
    """200,000 lines: several chunks."""
    path = tmp_path / "run.csv"
    with path.open("w") as file:
        file.write("step,rank,step_time\n")
        file.writelines(f"{s},{r},1.0\n" for s in range(200) for r in range(1000))
    recording = read_recording(path)
    assert (len(recording.layout), len(recording.rows)) == (1000, 200_000)
    assert sum(len(found) for _, found in recording.by_step()) == 200_000
