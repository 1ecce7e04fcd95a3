"""The bubble measured from spans, and what is left out of a timeline that is too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.lifecycle.timeline import (
    RankTimeline,
    Span,
    Timeline,
    Totals,
    Work,
    bounded,
    ideal_us,
    measured_bubble,
    window_us,
)
from orchestrator.spec.sections import PipelineSchedule


def rank_of(index: int, spans: list[Span]) -> RankTimeline:
    busy: dict[Work, int] = {}
    for span in spans:
        busy[span.work] = busy.get(span.work, 0) + span.end_us - span.start_us
    own = spans[-1].end_us - spans[0].start_us
    return RankTimeline(
        rank=index,
        start_us=spans[0].start_us,
        end_us=spans[-1].end_us,
        busy_us=busy,
        spans=spans,
        totals=Totals(steps=1, busy_us=busy, own_us=own),
    )


def gpipe(pp: int, microbatches: int, forward_us: int, backward_us: int) -> list[RankTimeline]:
    """Huang et al. 2019, figure 2: every micro-batch forward, then every one backward."""
    turn = (pp + microbatches - 1) * forward_us
    ranks = []
    for p in range(pp):
        forwards = [(p + m) * forward_us for m in range(microbatches)]
        backwards = [turn + (pp - 1 - p + m) * backward_us for m in range(microbatches)]
        ranks.append(
            rank_of(
                p,
                [Span(Work.FORWARD, p, m, at, at + forward_us) for m, at in enumerate(forwards)]
                + [Span(Work.BACKWARD, p, m, at, at + backward_us) for m, at in enumerate(backwards)],
            )
        )
    return ranks


@given(st.integers(1, 8), st.integers(1, 16), st.integers(1, 1000), st.integers(1, 1000))
def test_a_perfect_gpipe_has_the_bubble_of_the_formula(
    pp: int, microbatches: int, forward_us: int, backward_us: int
) -> None:
    ranks = gpipe(pp, microbatches, forward_us, backward_us)
    assert measured_bubble(ranks) == pytest.approx((pp - 1) / microbatches, rel=1e-12, abs=1e-12)
    assert ideal_us(ranks) == microbatches * (forward_us + backward_us)


def test_stages_of_unlike_length_count_as_idleness() -> None:
    ranks = [rank_of(0, [Span(Work.FORWARD, 0, 0, 0, 100)]), rank_of(1, [Span(Work.FORWARD, 1, 0, 100, 400)])]
    # Ranks compute 100 and 300 of 400: idle 200 on the mean, ideal 200.
    assert (window_us(ranks), measured_bubble(ranks)) == (400, 1.0)


def test_gaps_are_between_a_ranks_own_first_and_last_work() -> None:
    rank = rank_of(0, [Span(Work.FORWARD, 0, 0, 50, 60), Span(Work.BACKWARD, 0, 0, 75, 100)])
    assert rank.gaps_us == 15


def test_what_fits_stays_whole() -> None:
    ranks = gpipe(4, 8, 10, 20)
    assert bounded(ranks, spans=4 * 16) == ranks


@pytest.mark.parametrize(
    ("spans", "drawn", "each"),
    [(3 * 16, [0, 3, 7], 16), (2 * 16, [0, 7], 16), (10, [0, 7], 5)],
)
def test_what_does_not_fit_is_left_out_evenly_and_counted(spans: int, drawn: list[int], each: int) -> None:
    found = bounded(gpipe(8, 8, 10, 20), spans=spans)
    assert [len(rank.spans) for rank in found] == [each if p in drawn else 0 for p in range(8)]
    assert all(len(rank.spans) + rank.spans_left_out == 16 for rank in found)
    assert measured_bubble(found) == pytest.approx(7 / 8)


def test_json_and_back() -> None:
    ranks = gpipe(2, 2, 10, 20)
    timeline = Timeline(
        step=3,
        schedule=PipelineSchedule.GPIPE,
        pp=2,
        microbatches=2,
        virtual_stages=1,
        clock_error_us=0,
        window_us=window_us(ranks),
        bubble=measured_bubble(ranks),
        ranks=ranks,
    )
    document = timeline.model_dump(mode="json")
    assert document["ranks"][0]["spans"][0] == ["forward", 0, 0, 0, 10]
    assert Timeline.model_validate(document) == timeline
    with pytest.raises(ValidationError):
        Timeline.model_validate(document | {"ranks": []})
