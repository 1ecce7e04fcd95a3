"""The ladder: which repair follows, and when it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import Cause, Failure
from orchestrator.recovery.ladder import GiveUp, History, Replace, RestartInPlace, next_repair
from orchestrator.spec.sections import RecoverySpec

KILLED = Failure(Cause.SIGNAL, 1.0, "rank 5 on n2 was ended by SIGKILL", 5, "n2")
RAISED = Failure(
    Cause.EXCEPTION, 1.0, "rank 3 on n1 raised ValueError: x", 3, "n1", "Traceback ...\nValueError: x\n"
)
REFUSED = Failure(
    Cause.INPUT,
    1.0,
    "rank 0 on n1 raised ValueError: data.source: no file",
    0,
    "n1",
    "Traceback ...\nValueError\n",
)
HUNG = Failure(Cause.HUNG, 1.0, "no rank got on for 31 s after step 4: rank 1 ...", 1, "n1", "Thread 0x1 ...")
LOST = Failure(Cause.NODE_LOST, 1.0, "node n1 is lost", None, "n1", "", ("n1",))


def test_killed_rank_restarts_in_place_and_uses_the_budget() -> None:
    repair = next_repair(KILLED, 7, History(), RecoverySpec(max_restarts=1))
    assert repair == RestartInPlace(History(restarts_used=1, step=7, deaths=1))
    repair = next_repair(KILLED, 9, repair.history, RecoverySpec(max_restarts=1))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT


def test_lost_node_asks_for_a_placement_and_leaves_the_count_to_the_controller() -> None:
    repair = next_repair(LOST, 7, History(restarts_used=2), RecoverySpec())
    assert repair == Replace(History(restarts_used=2, step=7, deaths=1), ("n1",))


def test_lost_node_without_budget_gives_up() -> None:
    repair = next_repair(LOST, 7, History(restarts_used=5), RecoverySpec(max_restarts=5))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT


def test_exception_at_the_same_step_counts_like_any_other_until_the_limit() -> None:
    recovery, history = RecoverySpec(max_restarts_at_step=3), History()
    for _ in range(2):
        repair = next_repair(RAISED, 4, history, recovery)
        assert isinstance(repair, RestartInPlace)
        history = repair.history
    repair = next_repair(RAISED, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.USER_ERROR
    assert "ValueError: x" in repair.message
    assert repair.message.endswith(RAISED.traceback.rstrip())


def test_input_that_is_refused_before_the_first_step_is_not_tried_again() -> None:
    repair = next_repair(REFUSED, 0, History(), RecoverySpec(max_restarts_at_step=3))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.USER_ERROR
    assert repair.message.startswith("rank 0 on n1 raised ValueError: data.source: no file")
    assert repair.message.endswith(REFUSED.traceback.rstrip())


@pytest.mark.parametrize(
    ("history", "step"),
    [(History(restarts_used=1), 0), (History(), 8), (History(deaths=1), 0)],
    ids=["placed again", "has trained", "died before"],
)
def test_input_that_was_good_before_is_tried_again(history: History, step: int) -> None:
    """A node that joined a moment ago may not have its storage yet."""
    repair = next_repair(REFUSED, step, history, RecoverySpec(max_restarts_at_step=3))
    assert isinstance(repair, RestartInPlace)


def test_deaths_that_are_not_the_programs_fault_are_no_user_error() -> None:
    recovery, history = RecoverySpec(max_restarts_at_step=3), History()
    for failure in (RAISED, KILLED):
        history = next_repair(failure, 4, history, recovery).history
    repair = next_repair(RAISED, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.NO_PROGRESS


def test_progress_begins_the_count_again() -> None:
    recovery = RecoverySpec(max_restarts=100, max_restarts_at_step=2)
    history = next_repair(KILLED, 4, History(), recovery).history
    repair = next_repair(KILLED, 5, history, recovery)
    assert isinstance(repair, RestartInPlace)
    assert (repair.history.step, repair.history.deaths) == (5, 1)


def test_a_step_back_is_no_progress() -> None:
    recovery = RecoverySpec(max_restarts_at_step=2)
    history = next_repair(KILLED, 9, History(), recovery).history
    assert isinstance(next_repair(KILLED, 6, history, recovery), GiveUp)


def test_deaths_of_an_earlier_incarnation_count() -> None:
    repair = next_repair(
        KILLED, 4, History(restarts_used=2, step=4, deaths=2), RecoverySpec(max_restarts_at_step=3)
    )
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.NO_PROGRESS


def test_without_restarts_the_first_exception_is_the_users() -> None:
    repair = next_repair(RAISED, 0, History(), RecoverySpec(max_restarts=0))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.USER_ERROR


@given(
    st.lists(st.tuples(st.sampled_from([KILLED, RAISED, LOST]), st.integers(0, 20)), min_size=1, max_size=60),
    st.integers(0, 10),
    st.integers(1, 5),
)
def test_it_always_ends(deaths: list[tuple[Failure, int]], max_restarts: int, at_step: int) -> None:
    """Counted from the outside: never more repairs than max_restarts, never as many deaths as allowed in a row."""
    recovery = RecoverySpec(max_restarts=max_restarts, max_restarts_at_step=at_step)
    history, row, best = History(), 0, -1
    for repairs, (failure, step) in enumerate(deaths):
        row, best = (1, step) if step > best else (row + 1, best)
        repair = next_repair(failure, step, history, recovery)
        if isinstance(repair, GiveUp):
            assert row >= at_step or repairs == max_restarts
            return
        assert row < at_step
        assert repairs < max_restarts
        history = repair.history
        if isinstance(repair, Replace):  # as the controller does when it places again
            history = History(history.restarts_used + 1, history.step, history.deaths)


def test_a_hang_restarts_in_place_and_is_not_the_users_fault() -> None:
    repair = next_repair(HUNG, 4, History(), RecoverySpec(max_restarts=1))
    assert repair == RestartInPlace(History(restarts_used=1, step=4, deaths=1, hangs=1))
    repair = next_repair(HUNG, 9, repair.history, RecoverySpec(max_restarts=1))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT, "it got on between: two hangs of the hardware"


def test_nothing_but_hangs_at_one_step_is_the_program() -> None:
    recovery, history = RecoverySpec(max_restarts_at_step=3), History()
    for _ in range(2):
        repair = next_repair(HUNG, 4, history, recovery)
        assert isinstance(repair, RestartInPlace)
        history = repair.history
    repair = next_repair(HUNG, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.USER_ERROR
    assert repair.message.endswith(HUNG.traceback)


def test_a_hang_after_a_kill_at_the_same_step_is_no_progress() -> None:
    recovery, history = RecoverySpec(max_restarts_at_step=3), History()
    for failure in (HUNG, KILLED):
        repair = next_repair(failure, 4, history, recovery)
        assert isinstance(repair, RestartInPlace)
        history = repair.history
    repair = next_repair(HUNG, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.NO_PROGRESS
