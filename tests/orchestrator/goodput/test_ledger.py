"""The classes add up to the whole, exactly, and each second lies where a reader of the history would put it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.goodput.classes import Ledger, Spent, together
from orchestrator.goodput.ledger import WAITS, FinishedStep, History, Holding, ledger
from orchestrator.goodput.periods import Moment
from orchestrator.lifecycle.reports import EventKind as E

S = 1_000_000
"""A second."""


def seconds(found: Ledger) -> dict[Spent, float]:
    """GPU-seconds of the classes that are not empty."""
    return {spent: gpu_us / S for spent, gpu_us in found.gpu_us.items() if gpu_us}


def steps(*numbers: int, begin_s: int, took_s: int = 10, **waits: int) -> list[FinishedStep]:
    waited = {Spent(name.replace("_", "-")): s * S for name, s in waits.items()}
    return [
        FinishedStep((begin_s + took_s * (i + 1)) * S, number, took_s * S, waited)
        for i, number in enumerate(numbers)
    ]


def moments(*told: tuple[int, E] | tuple[int, E, int]) -> list[Moment]:
    return [Moment(at * S, kind, *more) for at, kind, *more in told]


UNDISTURBED = History(
    submitted_us=0,
    until_us=70 * S,
    asked=4,
    moments=moments(
        (0, E.SUBMITTED),
        (1, E.QUEUED),
        (20, E.PLACED),
        (25, E.ATTEMPT_STARTED),
        (30, E.TRAINING_STARTED),
        (65, E.ATTEMPT_ENDED),
        (70, E.FINISHED),
    ),
    steps=steps(1, 2, 3, begin_s=30, exposed_communication=2, bubble=1, data_wait=1),
)


def test_an_undisturbed_job() -> None:
    assert seconds(ledger(UNDISTURBED)) == {
        Spent.QUEUED: 4 * 20,
        Spent.START: 4 * 10,
        Spent.EXPOSED_COMMUNICATION: 4 * 3 * 2,
        Spent.BUBBLE: 4 * 3 * 1,
        Spent.DATA_WAIT: 4 * 3 * 1,
        Spent.USEFUL_COMPUTE: 4 * (3 * 6 + 5),  # five seconds from the last step to the attempt's end
        Spent.CHECKPOINT_STALL: 4 * 5,
    }


def test_a_rank_that_dies_costs_lost_work_detection_and_repair() -> None:
    """Steps 1 to 3 from 10 s on, a checkpoint of step 1, a death in step 4 that is told 25 s after step 3."""
    found = ledger(
        History(
            submitted_us=0,
            until_us=125 * S,
            asked=2,
            moments=moments(
                (0, E.SUBMITTED),
                (0, E.PLACED),
                (10, E.TRAINING_STARTED),
                (65, E.RANK_DIED),
                (66, E.REPAIR_STARTED),
                (70, E.ATTEMPT_STARTED),
                (80, E.RESUMED, 1),
                (85, E.TRAINING_STARTED),
                (125, E.FINISHED),
            ),
            steps=[*steps(1, 2, 3, begin_s=10), *steps(2, 3, 4, 5, begin_s=85)],
        )
    )
    assert seconds(found) == {
        Spent.START: 2 * 10,
        Spent.USEFUL_COMPUTE: 2 * (10 + 40),
        Spent.LOST_WORK: 2 * (20 + 10),  # steps 2 and 3, and the one that was broken off
        Spent.DETECTION: 2 * 15,
        Spent.REPAIR: 2 * 20,
    }
    assert found.goodput == pytest.approx(50 / 125)


def test_a_job_that_is_queued_again_waits_in_the_queue_and_not_in_repair() -> None:
    found = ledger(
        History(
            0,
            100 * S,
            1,
            moments(
                (0, E.PLACED),
                (10, E.TRAINING_STARTED),
                (30, E.NODE_LOST),
                (35, E.QUEUED),
                (60, E.PLACED),
                (70, E.RESUMED, 2),
                (80, E.TRAINING_STARTED),
            ),
            [*steps(1, 2, begin_s=10), *steps(3, 4, begin_s=80)],
        )
    )
    assert seconds(found) == {
        Spent.START: 10,
        Spent.USEFUL_COMPUTE: 40,
        Spent.REPAIR: 5 + 20,
        Spent.QUEUED: 25,
    }


def test_a_rewind_loses_steps_without_a_repair() -> None:
    found = ledger(
        History(
            0,
            50 * S,
            1,
            moments((0, E.PLACED), (0, E.TRAINING_STARTED), (30, E.REWOUND, 1)),
            [*steps(1, 2, 3, begin_s=0), *steps(2, 3, begin_s=30)],
        )
    )
    assert seconds(found) == {Spent.USEFUL_COMPUTE: 30, Spent.LOST_WORK: 20}


def test_fewer_gpus_are_degraded_and_spares_are_idle() -> None:
    history = replace(
        UNDISTURBED, holdings=[Holding(20 * S, working=4, spare=1), Holding(40 * S, working=3, spare=0)]
    )
    found = seconds(ledger(history))
    assert found[Spent.QUEUED] == 4 * 20
    assert found[Spent.IDLE_SPARE] == 20
    assert found[Spent.DEGRADED] == 30
    assert sum(found.values()) == 4 * 70 + 20


def test_clocks_that_differ_by_minutes_change_no_sum() -> None:
    skewed = [replace(m, at_us=m.at_us - 300 * S) if i % 2 else m for i, m in enumerate(UNDISTURBED.moments)]
    assert ledger(replace(UNDISTURBED, moments=skewed)).total_us == 4 * 70 * S


def test_a_job_still_in_the_queue_and_one_that_ended_at_once() -> None:
    assert seconds(ledger(History(0, 9 * S, 8))) == {Spent.QUEUED: 72}
    assert ledger(History(5, 5, 8)).total_us == 0


def test_impossible_histories_are_refused() -> None:
    with pytest.raises(ValueError, match="before it begins"):
        ledger(History(2, 1, 1))
    with pytest.raises(ValueError, match="0 GPUs: at least 1"):
        ledger(History(0, 1, 0))


TIMES = st.integers(-(10**12), 10**12)
MOMENTS = st.builds(Moment, TIMES, st.sampled_from(list(E)), st.none() | st.integers(0, 20))
STEPS = st.builds(
    FinishedStep,
    TIMES,
    st.integers(1, 20),
    st.integers(0, 10**9),
    st.dictionaries(st.sampled_from(WAITS), st.integers(-5, 10**12)),
)
HOLDINGS = st.builds(Holding, TIMES, st.integers(0, 9), st.integers(0, 3))


@given(TIMES, st.integers(0, 10**12), st.integers(1, 9), st.lists(MOMENTS), st.lists(STEPS))
def test_the_classes_of_any_history_add_up_to_the_whole(
    begin: int, length: int, asked: int, told: list[Moment], finished: list[FinishedStep]
) -> None:
    found = ledger(History(begin, begin + length, asked, told, finished))
    assert sum(found.gpu_us.values()) == found.total_us == length * asked
    assert all(gpu_us >= 0 for gpu_us in found.gpu_us.values())


@given(TIMES, st.integers(0, 10**12), st.lists(MOMENTS), st.lists(STEPS), st.lists(HOLDINGS, min_size=1))
def test_so_do_they_when_gpus_come_and_go(
    begin: int, length: int, told: list[Moment], finished: list[FinishedStep], holdings: list[Holding]
) -> None:
    """At no time is less accounted for than the GPUs that were asked for, nor more than the most that were there."""
    asked = 4
    found = ledger(History(begin, begin + length, asked, told, finished, holdings))
    most = max(asked, *(max(asked, h.working) + h.spare for h in holdings))
    assert asked * length <= found.total_us <= most * length
    assert all(gpu_us >= 0 for gpu_us in found.gpu_us.values())


def test_a_cluster_is_the_sum_of_its_jobs() -> None:
    one, other = ledger(UNDISTURBED), ledger(History(0, 9 * S, 8))
    both = together([one, other])
    assert both.total_us == one.total_us + other.total_us
    assert both.gpu_us[Spent.QUEUED] == (80 + 72) * S
    assert together([]).goodput == 0.0


def test_json_has_every_class_and_adds_up() -> None:
    said = ledger(UNDISTURBED).to_json()
    assert set(said["gpu_seconds"]) == {spent.value for spent in Spent}
    assert sum(said["gpu_seconds"].values()) == pytest.approx(said["total_gpu_seconds"], abs=1e-6)
    assert said["total_gpu_seconds"] == 280
