"""The journal: nothing lost, nothing doubled, whatever is drained when."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors import journal as journal_module
from actors.journal import Journal
from orchestrator.lifecycle.reports import EventKind


def record(step: int) -> dict[str, Any]:
    return {
        "step": step,
        "loss": 1.0,
        "grad_norm": 0.5,
        "learning_rate": 1e-3,
        "tokens": 4096,
        "step_time_s": 0.5,
    }


def test_tokens_per_second() -> None:
    journal = Journal()
    assert journal.step(1, record(7), 10.0) == 7
    (step,) = journal.steps_after(0)
    assert (step.seq, step.step, step.tokens_per_s) == (1, 7, 4096 / 0.5)


def test_numbers_beyond_all_bounds_are_kept_as_the_bound() -> None:
    journal = Journal()
    huge = 10**400  # more than a float holds
    said = {
        "step": huge,
        "loss": huge,
        "grad_norm": -huge,
        "tokens": huge,
        "step_time_s": 1,
        "learning_rate": 0,
    }
    assert journal.step(1, said, 10.0) == 2**31 - 1
    (step,) = journal.steps_after(0)
    assert (step.step, step.tokens, step.loss, step.grad_norm) == (2**31 - 1, 2**63 - 1, math.inf, -math.inf)
    journal.step(1, {**record(2), "tokens": math.nan}, 10.0)
    assert journal.steps_after(1)[0].tokens == 0


@given(st.lists(st.sampled_from(["event", "step", "drain", "drain again"]), max_size=80))
def test_drained_by_cursor_every_event_and_step_arrives_once(doings: list[str]) -> None:
    journal, events, steps, made = Journal(), [], [], {"event": 0, "step": 0}

    def drain() -> None:
        events.extend(journal.events_after(events[-1].seq if events else 0))
        steps.extend(journal.steps_after(steps[-1].seq if steps else 0))

    for doing in doings:
        match doing:
            case "event":
                made["event"] += 1
                journal.event(EventKind.EVALUATED, 1, str(made["event"]))
            case "step":
                made["step"] += 1
                journal.step(1, record(made["step"]), 0.0)
            case "drain":
                drain()
            case _:  # an answer that never arrived: the cursors stay
                journal.events_after(events[-1].seq if events else 0)
                journal.steps_after(steps[-1].seq if steps else 0)
    drain()
    assert [event.seq for event in events] == list(range(1, made["event"] + 1))
    assert [step.step for step in steps] == list(range(1, made["step"] + 1))


def test_the_end_is_told_only_when_everything_before_was(monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_module, "PAGE", 2)
    journal = Journal()
    for step in range(1, 4):
        journal.step(1, record(step), 0.0)
        journal.event(EventKind.EVALUATED, 1, "")
    events, steps = journal.events_after(0), journal.steps_after(0)
    assert len(events) == len(steps) == 2
    assert not journal.drained(events, steps, 0)
    events, steps = journal.events_after(2), journal.steps_after(2)
    assert journal.drained(events, steps, 2)


def test_without_a_reader_steps_get_coarser_but_do_not_break_off(monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_module, "STEPS_KEPT", 100)
    journal = Journal()
    for step in range(1, 1001):
        journal.step(1, record(step), 0.0)
    kept = [step.step for step in journal.steps_after(0)]
    assert len(kept) <= 100
    assert kept[-1] == 1000
    assert kept[-40:] == list(range(961, 1001)), "the newest are whole"
    assert kept[0] < 300, "the oldest part is there too"


def test_timelines_that_nobody_drains_give_way_to_newer_ones() -> None:
    journal = Journal()
    count = journal_module.TIMELINES_KEPT + 3
    for step in range(1, count + 1):
        journal.event(EventKind.TIMELINE, 1, "said", {"step": step})
        journal.event(EventKind.EVALUATED, 1, "said", {"step": step})
    events = journal.events_after(0)
    assert [event.seq for event in events] == list(range(1, 2 * count + 1))
    kept = [event.data.get("step") for event in events if event.kind is EventKind.TIMELINE]
    assert kept == [None] * 3 + list(range(4, count + 1))
    assert all(event.data for event in events if event.kind is EventKind.EVALUATED)


def test_the_cost_of_a_step_is_kept_as_far_as_it_is_known() -> None:
    journal = Journal()
    said = {"sent_bytes": {"tp": 7, "wan": 9}, "mfu": float("nan")}
    plain = record(1)
    journal.step(1, {**plain, "cost": said}, at=1.0)
    journal.step(1, {**plain, "step": 2}, at=2.0)
    assert [step.cost for step in journal.steps_after(0)] == [{"sent_bytes": {"tp": 7}}, {}]
