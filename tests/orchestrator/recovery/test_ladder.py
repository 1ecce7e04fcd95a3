"""The ladder: which repair follows, and when it ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import Blame, Cause, Failure
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


def hung(*states: str) -> Failure:
    """Of ranks 1, 2 ... that the others wait for; their processes are in these states."""
    missing = list(range(1, len(states) + 1))
    ranks = [{"rank": rank, "state": state} for rank, state in zip(missing, states, strict=True)]
    details = {"missing": missing, "ranks": [*ranks, {"rank": 0, "state": "S"}]}
    summary = "no rank got on for 31 s after step 4: rank 1 ..."
    return Failure(Cause.HUNG, 1.0, summary, 1, "n1", "Thread 0x1 ...", details=details)


LOOPS, STOPPED, NETWORK = hung("R"), hung("T"), hung()
"""A rank in code of its own, a rank that a signal stopped, all ranks in the same collective."""
LOST = Failure(Cause.NODE_LOST, 1.0, "node n1 is lost", None, "n1", "", ("n1",))


def test_killed_rank_restarts_in_place_and_uses_the_budget() -> None:
    repair = next_repair(KILLED, 7, History(), RecoverySpec(max_restarts=1))
    assert repair == RestartInPlace(History(restarts_used=1, step=7, deaths=1, spent={Blame.RANK: 1}))
    repair = next_repair(KILLED, 9, repair.history, RecoverySpec(max_restarts=1))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT
    assert "the 1 repairs that recovery.max_restarts allows without a checkpoint are used" in repair.message


def test_lost_node_asks_for_another_place_and_leaves_the_count_to_who_gives_it() -> None:
    repair = next_repair(LOST, 7, History(restarts_used=2), RecoverySpec())
    spent = {Blame.HARDWARE: 1}
    assert repair == Replace(
        History(restarts_used=2, step=7, spent=spent), ("n1",), ("in-place: node n1 is lost",)
    )


def test_lost_nodes_count_neither_against_the_program_nor_as_deaths_without_progress() -> None:
    """Eight nodes are lost before the next step; then a rank is killed, which is the first death there."""
    recovery, history = RecoverySpec(max_restarts=1, max_restarts_at_step=2), History()
    for _ in range(8):
        repair = next_repair(LOST, 7, history, recovery)
        assert isinstance(repair, Replace)
        history = repair.history
    assert isinstance(next_repair(KILLED, 7, history, recovery), RestartInPlace)


def test_lost_nodes_have_a_budget_of_their_own() -> None:
    recovery = RecoverySpec(max_hardware_failures=1)
    history = next_repair(LOST, 7, History(), recovery).history
    repair = next_repair(LOST, 9, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT
    assert "recovery.max_hardware_failures" in repair.message


@pytest.mark.parametrize("failure", [KILLED, RAISED, LOST], ids=lambda failure: failure.cause)
def test_a_newer_checkpoint_fills_the_budgets_again(failure: Failure) -> None:
    recovery, history = RecoverySpec(max_restarts=1, max_hardware_failures=1), History()
    for step in range(10, 60, 10):  # each time 10 steps further, with a checkpoint between
        repair = next_repair(failure, step, history, recovery, saved=step - 5)
        assert not isinstance(repair, GiveUp)
        history = repair.history
    repair = next_repair(failure, 60, history, recovery, saved=45)
    assert isinstance(repair, GiveUp), "no checkpoint since the last failure"


def test_the_budgets_outlive_the_supervisor() -> None:
    recovery = RecoverySpec(max_restarts=1)
    history = next_repair(KILLED, 9, History(), recovery, saved=5).history
    carried = history.carried(saved=5)
    assert carried == {"own": 0, "saved": 5, "rank": 1}
    again = History.of(history.restarts_used, (history.step, history.deaths), carried)
    assert again == history
    assert isinstance(next_repair(KILLED, 12, again, recovery, saved=5), GiveUp)
    assert history.carried(saved=10) == {"own": 0, "saved": 10}, "a checkpoint came after the failure"


def test_slow_nodes_that_were_left_are_counted_over_supervisors_and_are_no_failures() -> None:
    history = History().replaced_one().replaced_one()
    assert history.carried() == {"own": 0, "saved": 0, "replaced": 2}
    assert History.of(0, (0, 0), history.carried()) == history


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
def test_it_always_ends(deaths: list[tuple[Failure, int]], most: int, at_step: int) -> None:
    """Counted from the outside, without a checkpoint: never more repairs after one kind of failure than its budget,
    never as many deaths in a row as allowed that hardware is not to blame for."""
    recovery = RecoverySpec(max_restarts=most, max_hardware_failures=most, max_restarts_at_step=at_step)
    history, row, best, repairs = History(), 0, -1, dict.fromkeys((KILLED.cause, RAISED.cause, LOST.cause), 0)
    for failure, step in deaths:
        if step > best or row == 0:
            row, best = 0, step
        row += failure is not LOST
        repair = next_repair(failure, step, history, recovery)
        if isinstance(repair, GiveUp):
            assert (row >= at_step and failure is not LOST) or repairs[failure.cause] == most
            return
        assert row < at_step or failure is LOST
        assert repairs[failure.cause] < most
        repairs[failure.cause] += 1
        history = repair.history


def test_a_hang_restarts_in_place_and_is_not_the_users_fault() -> None:
    repair = next_repair(STOPPED, 4, History(), RecoverySpec(max_restarts=1))
    assert repair == RestartInPlace(History(restarts_used=1, step=4, deaths=1, spent={Blame.RANK: 1}))
    repair = next_repair(STOPPED, 9, repair.history, RecoverySpec(max_restarts=1))
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT, "it got on between: two hangs of the hardware"


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(LOOPS, Reason.USER_ERROR), (STOPPED, Reason.NO_PROGRESS), (hung("S", "D"), Reason.NO_PROGRESS)],
    ids=["in code of its own", "stopped by a signal", "one blocked in the kernel"],
)
def test_nothing_but_hangs_at_one_step(failure: Failure, reason: Reason) -> None:
    recovery, history = RecoverySpec(max_restarts_at_step=3), History()
    for _ in range(2):
        repair = next_repair(failure, 4, history, recovery)
        assert isinstance(repair, RestartInPlace)
        history = repair.history
    repair = next_repair(failure, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is reason
    assert repair.message.endswith(failure.traceback)


def test_a_network_that_fails_again_and_again_is_nobodys_error() -> None:
    """All wait in the same collective, ten times after the same step: hardware, and within its budget."""
    recovery, history = (
        RecoverySpec(max_restarts=2, max_restarts_at_step=2, max_hardware_failures=10),
        History(),
    )
    for _ in range(10):
        repair = next_repair(NETWORK, 4, history, recovery)
        assert isinstance(repair, RestartInPlace)
        history = repair.history
    repair = next_repair(NETWORK, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.RETRY_BUDGET_SPENT


def test_a_hang_after_a_kill_at_the_same_step_is_no_progress() -> None:
    recovery, history = RecoverySpec(max_restarts_at_step=3), History()
    for failure in (LOOPS, KILLED):
        repair = next_repair(failure, 4, history, recovery)
        assert isinstance(repair, RestartInPlace)
        history = repair.history
    repair = next_repair(LOOPS, 4, history, recovery)
    assert isinstance(repair, GiveUp)
    assert repair.reason is Reason.NO_PROGRESS
