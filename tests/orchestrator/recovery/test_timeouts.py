"""The relations between deadlines hold for whatever a user may set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.recovery.timeouts import (
    AGENT_END_S,
    CANCEL_S,
    CONTROL_CALL_S,
    CONTROLLER_END_S,
    LAST_WORK_S,
    LONGEST_ACT_S,
    RANK_DRAIN_S,
    REAP_S,
    SUPERVISOR_START_S,
    ZYGOTE_END_S,
    BaseTimes,
    Timeouts,
)
from orchestrator.spec.sections import RecoverySpec

STEP_TIMEOUTS = st.floats(min_value=0.1, max_value=86_400)
BASES = st.builds(
    BaseTimes,
    watch_s=st.floats(min_value=0.1, max_value=30),
    missed_watches=st.integers(min_value=4, max_value=50),
    control_plane_away_s=st.floats(min_value=1, max_value=86_400),
    settle_s=st.floats(min_value=0.5, max_value=60),
)


@given(STEP_TIMEOUTS, st.floats(min_value=0.5, max_value=86_400), BASES)
def test_relations(step_timeout_s: float, hang_after_s: float, base: BaseTimes) -> None:
    times = Timeouts.of(RecoverySpec(step_timeout_s=step_timeout_s, hang_after_s=hang_after_s), base)
    assert times.agent_lease_s >= 4 * times.watch_s, "a supervisor that misses three renewals is not dead"
    assert times.agent_lease_s > times.settle_s, "a death is explained before another agent gives up"
    assert times.verdict_s < times.settle_s, "a lost agent is told before its followers pass for the cause"
    assert times.supervisor_lease_s > times.agent_lease_s
    assert times.call_s > times.watch_s, "a long poll is not taken for a lost call"
    assert times.silence_s > times.collective_s, "a collective raises before the supervisor stops waiting"
    assert times.build_s > times.collective_s
    assert times.hang_after_s <= times.silence_s, "what is known of the pace only shortens the wait"
    assert times.collective_s == pytest.approx(step_timeout_s)


def test_relations_at_the_end_of_a_gang() -> None:
    assert ZYGOTE_END_S < AGENT_END_S, "an agent that ends says so itself"
    assert AGENT_END_S < REAP_S, "the reaper has time for what comes after the agents"
    assert CONTROL_CALL_S < SUPERVISOR_START_S <= LONGEST_ACT_S
    assert REAP_S + CONTROL_CALL_S <= LONGEST_ACT_S, "the reaper ends by itself, between two calls"
    assert LONGEST_ACT_S < CONTROLLER_END_S, "a controller that stops is not killed while it acts"


@given(STEP_TIMEOUTS)
def test_the_end_of_a_gang_is_not_cut_short(step_timeout_s: float) -> None:
    """With the times of production; a user may set the step timeout alone."""
    times = Timeouts.of(RecoverySpec(step_timeout_s=step_timeout_s))
    assert times.longest_end_s < CANCEL_S
    assert times.longest_end_s < LAST_WORK_S
    assert times.call_s > ZYGOTE_END_S, "a supervisor that ends an agent learns that it is done"
    assert RANK_DRAIN_S < times.verdict_s < times.settle_s, (
        "the end of a rank is known before its cause is judged"
    )
    assert times.supervisor_lease_s > CANCEL_S


def test_training_goes_on_for_an_hour_without_a_control_plane() -> None:
    assert Timeouts.of(RecoverySpec()).supervisor_lease_s == 3600.0
