"""`atoll timeline` against a real API process, and the chart it draws."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from atoll.answers import TimelineRank
from atoll.cli.timeline import lane
from orchestrator.lifecycle.reports import EventKind, GangEvent
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.store import timelines

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
Atoll = Callable[..., Any]
# GPipe over two ranks, two micro-batches, forward 10 ms and backward 20 ms: figure 2 of Huang et al. 2019.
FIRST = [("forward", 0, 0, 10), ("forward", 1, 10, 20), ("backward", 0, 50, 70), ("backward", 1, 70, 90)]
SECOND = [("forward", 0, 10, 20), ("forward", 1, 20, 30), ("backward", 0, 30, 50), ("backward", 1, 50, 70)]


def rank_document(index: int, works: list[tuple[str, int, int, int]]) -> dict[str, Any]:
    busy = {"forward": 20_000, "backward": 40_000}
    spans = [[work, index, micro, 1000 * start, 1000 * end] for work, micro, start, end in works]
    return {
        "rank": index,
        "start_us": spans[0][3],
        "end_us": spans[-1][4],
        "busy_us": busy,
        "spans": spans,
        "spans_left_out": 0,
        "totals": {"steps": 1, "busy_us": busy, "own_us": spans[-1][4] - spans[0][3]},
    }


def told(step: int) -> GangEvent:
    data: dict[str, Any] = {"schedule": "gpipe", "pp": 2, "microbatches": 2, "virtual_stages": 1}
    data |= {"step": step, "clock_error_us": 250, "window_us": 90_000, "bubble": 0.5}
    data["ranks"] = [rank_document(0, FIRST), rank_document(1, SECOND)]
    return GangEvent(step, NOW.timestamp(), EventKind.TIMELINE, 1, "said", data)


@pytest.fixture(scope="module")
def drawn(server: Any) -> str:
    job_id: str = server.insert("drawn", JobState.RUNNING, Reason.NONE)
    with server.database.write() as session:
        timelines.keep(session, job_id, [told(2), told(50)])
    return job_id


def test_the_chart_and_both_bubbles(drawn: str, server: Any, atoll: Atoll) -> None:
    ran = atoll("timeline", "drawn")
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "Step 50, attempt 1: gpipe, 2 ranks, 2 micro-batches, 90.0 ms"
    assert lines[1] == "Bubble: measured 50.0% of ideal time, in theory 50.0%"
    assert lines[2] == "Times of different hosts agree within 0.250 ms."
    assert [line[:7] for line in lines[3:5]] == ["rank 0 ", "rank 1 "]
    row = next(line.split() for line in lines if line.startswith("   0 "))
    # rank, forward, backward, busy, before, between, after (ms), idle part of the window
    assert row == ["0", "20.0", "40.0", "60.0", "0.0", "30.0", "0.0", "33.3%"]
    assert "Also kept: step 2" in ran.out


def test_json_is_the_answer_of_the_api(drawn: str, server: Any, atoll: Atoll) -> None:
    ran = atoll("timeline", drawn, "--step", "2", "--json")
    document = json.loads(ran.out)
    assert (document["step"], document["bubble"], document["theory"]) == (2, 0.5, 0.5)
    assert document["ranks"] == told(2).data["ranks"]


def test_a_step_that_is_not_kept(drawn: str, server: Any, atoll: Atoll) -> None:
    ran = atoll("timeline", drawn, "--step", "3")
    assert (ran.code, ran.out) == (2, "")
    assert "No timeline of step 3 is kept; kept are those of steps 2, 50." in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("works", "columns", "wanted"),
    [
        (FIRST, 18, "[][]······(0 )(1 )"),
        (FIRST, 36, "[0 ][1 ]············(  0   )(  1   )"),
        (SECOND, 18, "··[][](0 )(1 )····"),
        (FIRST, 9, "[[···()()"),
    ],
)
def test_a_lane_is_drawn_to_scale(works: Any, columns: int, wanted: str) -> None:
    rank = TimelineRank.model_validate(rank_document(0, works))
    assert lane(rank, 90_000, columns).plain == wanted


def test_a_rank_without_its_work_says_so() -> None:
    document = rank_document(0, FIRST) | {"spans": [], "spans_left_out": 4}
    assert lane(TimelineRank.model_validate(document), 90_000, 40).plain.startswith("drawn without its work")
