"""Classes add up to what was held and waited for, and each second lies where a reader of the history would put it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.goodput.classes import NOT_HELD, Ledger, Spent, together
from orchestrator.goodput.ledger import History, Holding, ledger
from orchestrator.goodput.periods import Moment
from orchestrator.goodput.stretch import Stretch, one_step, stretches
from orchestrator.lifecycle.reports import EventKind as E
from tests.orchestrator.goodput.histories import COST, FAULTY, S, history, steps, told


def seconds(found: Ledger) -> dict[Spent, float]:
    """GPU-seconds of the classes that are not empty."""
    return {spent: gpu_us / S for spent, gpu_us in found.gpu_us.items() if gpu_us}


UNDISTURBED = history(
    70,
    4,
    [
        told(20, E.PLACED, None),
        told(30, E.TRAINING_STARTED),
        told(64, E.EVALUATED),
        told(66, E.CHECKPOINT_COMMITTED),
        told(67, E.ATTEMPT_ENDED, outcome="succeeded"),
        told(69, E.FINISHED, outcome="succeeded"),
    ],
    steps(1, 2, 3, begin_s=31, cost=COST),
    held=((20, 73),),
)
"""Queued for 20 s; comes up in 10 s and begins a second later; evaluates for 3 s, waits 2 s for its last checkpoint and
is taken down: over after 70 s, its GPUs are free after 73 s."""


def test_an_undisturbed_job() -> None:
    found = ledger(UNDISTURBED)
    assert seconds(found) == {
        Spent.QUEUED: 4 * 20,
        Spent.START: 4 * (11 + 7),
        Spent.EXPOSED_COMMUNICATION: 4 * 3 * 2,
        Spent.BUBBLE: 4 * 3 * 1,
        Spent.DATA_WAIT: 4 * 3 * 1,
        Spent.USEFUL_COMPUTE: 4 * (3 * 6 + 3),
        Spent.CHECKPOINT_STALL: 4 * 2,
    }
    assert found.held_us == 4 * 53 * S
    assert found.goodput == pytest.approx(21 / 53)
    assert found.ettr == pytest.approx(33 / 73)


def split(stretch: Stretch, below: int) -> list[Stretch]:
    """Cut before step `below`: ten seconds a step, quiet."""
    numbers = range(stretch.first_step, stretch.last_step + 1)
    begin_s = stretch.first_end_us // S - 10
    first = [n for n in numbers if n < below]
    rest = [n for n in numbers if n >= below]
    return [
        *steps(*first, begin_s=begin_s, attempt=stretch.attempt, first_id=stretch.first_id),
        *steps(
            *rest,
            begin_s=begin_s + 10 * len(first),
            attempt=stretch.attempt,
            first_id=stretch.first_id + len(first),
        ),
    ]


def test_a_rank_that_dies_costs_lost_work_detection_and_repair() -> None:
    one, other = FAULTY.stretches
    found = ledger(replace(FAULTY, stretches=[*split(one, 2), other]))
    assert seconds(found) == {
        Spent.START: 2 * 10,
        Spent.USEFUL_COMPUTE: 2 * (10 + 40),
        Spent.LOST_WORK: 2 * (20 + 10),  # steps 2 and 3, and the one that was broken off
        Spent.DETECTION: 2 * (15 + 1),  # until it was told, and until its cause was settled
        Spent.REPAIR: 2 * 19,
    }
    assert found.goodput == pytest.approx(50 / 125)


def test_after_a_node_loss_it_holds_nothing_until_it_is_placed_again() -> None:
    found = ledger(
        history(
            100,
            1,
            [
                told(0, E.PLACED, None),
                told(10, E.TRAINING_STARTED),
                told(30, E.NODE_LOST),
                told(31, E.ATTEMPT_ENDED, outcome="node-lost"),
                told(33, E.FINISHED, outcome="node-lost"),
                told(60, E.PLACED, None),
                told(80, E.TRAINING_STARTED, 2),
            ],
            [*steps(1, 2, begin_s=10), *steps(3, 4, begin_s=80, attempt=2, first_id=3)],
            held=((0, 35), (60, 100)),
            over=False,
        )
    )
    assert seconds(found) == {
        Spent.START: 10,
        Spent.USEFUL_COMPUTE: 40,
        Spent.DETECTION: 1,
        Spent.REPAIR: 4 + 20,
        Spent.QUEUED: 25,
    }


def test_a_preemption_is_no_fault() -> None:
    """It saves until 45 s, is taken down until 50 s, waits until 70 s and starts again."""
    found = ledger(
        history(
            100,
            1,
            [
                told(10, E.TRAINING_STARTED),
                told(45, E.CHECKPOINT_COMMITTED),
                told(46, E.ATTEMPT_ENDED, outcome="vacated"),
                told(48, E.FINISHED, outcome="vacated"),
                told(70, E.PLACED, None),
                told(80, E.TRAINING_STARTED, 2),
            ],
            [*steps(1, 2, 3, begin_s=10), *steps(4, 5, begin_s=80, attempt=2, first_id=4)],
            held=((0, 50), (70, 100)),
            over=False,
        )
    )
    assert seconds(found) == {
        Spent.START: 10 + 5 + 10,
        Spent.USEFUL_COMPUTE: 30 + 20,
        Spent.CHECKPOINT_STALL: 5,
        Spent.QUEUED: 20,
    }


def test_of_a_job_that_failed_nothing_is_left_after_its_last_checkpoint() -> None:
    failed = history(
        45,
        1,
        [
            told(0, E.TRAINING_STARTED),
            told(35, E.RANK_DIED),
            told(36, E.ATTEMPT_ENDED, outcome="exception"),
            told(40, E.FINISHED, outcome="failed"),
        ],
        [*steps(1, begin_s=0), *steps(2, 3, begin_s=10, first_id=2)],
        held=((0, 47),),
        kept=1,
    )
    assert seconds(ledger(failed)) == {
        Spent.USEFUL_COMPUTE: 10,
        Spent.LOST_WORK: 20 + 5,
        Spent.DETECTION: 1,
        Spent.START: 11,  # nobody repaired it: it was taken down
    }


def test_a_supervisor_that_is_lost_goes_unnoticed_until_it_is_missed() -> None:
    found = ledger(
        history(
            60,
            1,
            [
                told(0, E.TRAINING_STARTED),
                told(45, E.SUPERVISOR_LOST, None),
                told(50, E.PLACED, None),
                told(60, E.TRAINING_STARTED, 2),
            ],
            steps(1, 2, begin_s=0),
            held=((0, 48), (50, 60)),
            over=False,
        )
    )
    assert seconds(found) == {
        Spent.USEFUL_COMPUTE: 20,
        Spent.LOST_WORK: 10,
        Spent.DETECTION: 15,
        Spent.REPAIR: 3 + 10,
        Spent.QUEUED: 2,
    }


def test_steps_that_were_saved_and_never_told_count() -> None:
    """The same, and it goes on with step 4: the ranks had trained and saved step 3 without a supervisor."""
    found = ledger(
        history(
            70,
            1,
            [
                told(0, E.TRAINING_STARTED),
                told(45, E.SUPERVISOR_LOST, None),
                told(60, E.TRAINING_STARTED, 2),
            ],
            [*steps(1, 2, begin_s=0), *steps(4, begin_s=60, attempt=2, first_id=3)],
            held=((0, 70),),
        )
    )
    assert seconds(found) == {
        Spent.USEFUL_COMPUTE: 20 + 10 + 10,
        Spent.LOST_WORK: 10,
        Spent.DETECTION: 5,
        Spent.REPAIR: 15,
    }
    assert found.to_json()["unmeasured_gpu_seconds"]["bubble"] == 10


def test_a_rewind_loses_steps_without_a_repair() -> None:
    found = ledger(
        history(
            50,
            1,
            [told(0, E.TRAINING_STARTED)],
            [
                *steps(1, begin_s=0),
                *steps(2, 3, begin_s=10, first_id=2),
                *steps(2, 3, begin_s=30, first_id=4),
            ],
            held=((0, 50),),
            over=False,
        )
    )
    assert seconds(found) == {Spent.USEFUL_COMPUTE: 30, Spent.LOST_WORK: 20}


def test_fewer_gpus_are_degraded_and_spares_are_idle() -> None:
    holdings = [Holding(20 * S, 40 * S, working=4, spare=1), Holding(40 * S, 73 * S, working=3)]
    found = ledger(replace(UNDISTURBED, holdings=holdings))
    assert found.gpu_us[Spent.QUEUED] == 4 * 20 * S
    assert found.gpu_us[Spent.IDLE_SPARE] == 20 * S
    assert found.gpu_us[Spent.DEGRADED] == 30 * S  # a job that is over misses nothing
    assert found.held_us == (5 * 20 + 3 * 33) * S


def test_a_part_of_a_life_is_cut_at_its_times() -> None:
    assert seconds(ledger(UNDISTURBED, 10 * S, 25 * S)) == {Spent.QUEUED: 40, Spent.START: 20}
    parts = together(ledger(UNDISTURBED, begin * S, (begin + 7) * S) for begin in range(0, 77, 7))
    assert parts.total_us == ledger(UNDISTURBED).total_us
    assert seconds(parts) == pytest.approx(seconds(ledger(UNDISTURBED)), abs=1e-4)


def test_a_part_of_a_stretch_is_taken_to_be_even() -> None:
    """Five seconds of thirty, each of which waits 4 s in 10."""
    assert seconds(ledger(UNDISTURBED, 40 * S, 45 * S)) == pytest.approx(
        {
            Spent.EXPOSED_COMMUNICATION: 4 * 1,
            Spent.BUBBLE: 4 * 0.5,
            Spent.DATA_WAIT: 4 * 0.5,
            Spent.USEFUL_COMPUTE: 4 * 3,
        },
        abs=1e-4,
    )


def test_waits_that_nobody_measured_are_not_told_as_zero() -> None:
    blind = ledger(replace(UNDISTURBED, stretches=steps(1, 2, 3, begin_s=31, cost=None)))
    said = blind.to_json()
    assert said["gpu_seconds"]["bubble"] is None
    assert said["gpu_seconds"]["exposed-communication"] is None
    assert said["gpu_seconds"]["checkpoint-stall"] == 8  # the last save is known all the same
    assert said["unmeasured_gpu_seconds"] == dict.fromkeys(
        ("exposed-communication", "bubble", "data-wait", "checkpoint-stall"), 120
    )
    known = ledger(replace(UNDISTURBED, stretches=steps(1, 2, 3, begin_s=31))).to_json()
    assert known["gpu_seconds"]["bubble"] == 0
    assert known["unmeasured_gpu_seconds"] == {}
    none = ledger(replace(UNDISTURBED, stretches=[])).to_json()
    assert none["gpu_seconds"]["bubble"] == 0


def test_waits_are_measured_in_a_part_of_the_steps() -> None:
    mixed = [
        *steps(1, begin_s=31, cost=COST),
        *steps(2, 3, begin_s=41, first_id=2, cost={"phases_s": COST["phases_s"]}),
    ]
    said = ledger(replace(UNDISTURBED, stretches=stretches(mixed))).to_json()
    assert said["gpu_seconds"]["bubble"] == 4
    assert said["gpu_seconds"]["data-wait"] == 12
    assert said["unmeasured_gpu_seconds"] == {"exposed-communication": 80, "bubble": 80}


def test_clocks_that_differ_by_minutes_change_no_sum() -> None:
    skewed = [replace(m, at_us=m.at_us - 300 * S) if i % 2 else m for i, m in enumerate(UNDISTURBED.moments)]
    assert ledger(replace(UNDISTURBED, moments=skewed)).total_us == ledger(UNDISTURBED).total_us


def test_a_job_still_in_the_queue_and_one_that_ended_at_once() -> None:
    assert seconds(ledger(History(0, 9 * S, False, 8))) == {Spent.QUEUED: 72}
    assert ledger(History(5, 5, True, 8)).total_us == 0


def test_impossible_histories_are_refused() -> None:
    with pytest.raises(ValueError, match="before it begins"):
        ledger(History(2, 1, True, 1))
    with pytest.raises(ValueError, match="0 GPUs: at least 1"):
        ledger(History(0, 1, True, 0))


TIMES = st.integers(0, 10**9)
ATTEMPTS = st.integers(1, 3)
MOMENTS = st.builds(
    Moment,
    TIMES,
    st.sampled_from(list(E)),
    st.none() | ATTEMPTS,
    outcome=st.sampled_from([None, "failed", "node-lost"]),
)
STEPS = st.builds(
    one_step,
    st.integers(1, 99),
    ATTEMPTS,
    st.integers(1, 20),
    TIMES,
    st.floats(0, 1e4),
    st.fixed_dictionaries(
        {}, optional={"phases_s": st.just({"data": 5.0}), "exposed_s": st.just({"pp": 1e3})}
    ),
)
BOUNDARIES = st.lists(TIMES, min_size=2, max_size=8).map(sorted)


@given(
    TIMES,
    st.integers(0, 10**9),
    st.lists(MOMENTS),
    st.lists(STEPS),
    BOUNDARIES,
    st.integers(1, 9),
    st.integers(0, 2),
    st.none() | st.integers(0, 9),
)
def test_whatever_happened_the_classes_are_what_was_held_and_waited_for(
    begin: int,
    length: int,
    moments: list[Moment],
    finished: list[Stretch],
    bounds: list[int],
    working: int,
    spare: int,
    kept: int | None,
) -> None:
    """Held time is added up here from the placements alone, without periods or steps."""
    asked, until = 4, begin + length
    held = [
        (max(begin, start), end) for start, end in zip(bounds[::2], bounds[1::2], strict=False) if end > begin
    ]
    holdings = [Holding(start, end, working, spare) for start, end in held]
    found = ledger(History(begin, until, True, asked, moments, finished, holdings, kept))
    assert all(gpu_us >= 0 for gpu_us in found.gpu_us.values())
    assert found.held_us == sum(end - start for start, end in held) * (working + spare)
    inside = sum(max(0, min(end, until) - min(start, until)) for start, end in held)
    assert found.gpu_us[Spent.QUEUED] == (length - inside) * asked
    assert found.gpu_us[Spent.DEGRADED] == inside * max(0, asked - working)
    assert sum(found.gpu_us[spent] for spent in NOT_HELD) + found.held_us == found.total_us


def test_a_cluster_is_the_sum_of_its_jobs() -> None:
    one, other = ledger(UNDISTURBED), ledger(History(0, 9 * S, False, 8))
    both = together([one, other])
    assert both.total_us == one.total_us + other.total_us
    assert both.gpu_us[Spent.QUEUED] == (80 + 72) * S
    assert together([]).goodput == 0.0


def test_json_has_every_class_and_adds_up() -> None:
    said = ledger(UNDISTURBED).to_json()
    assert set(said["gpu_seconds"]) == {spent.value for spent in Spent}
    assert sum(said["gpu_seconds"].values()) == pytest.approx(said["total_gpu_seconds"], abs=1e-6)
    assert said["total_gpu_seconds"] == 4 * 73
    assert said["held_gpu_seconds"] == 4 * 53
