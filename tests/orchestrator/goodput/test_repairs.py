"""Faults and what became of them, as a reader of the history would tell it."""

from __future__ import annotations

from orchestrator.goodput.periods import Moment
from orchestrator.goodput.repairs import repairs
from orchestrator.lifecycle.reports import EventKind as E
from tests.orchestrator.goodput.histories import FAULTY, S, steps, told


def test_a_repair_in_place() -> None:
    (found,) = repairs(FAULTY.moments, FAULTY.stretches, over=True)
    assert (found.fault, found.attempt, found.step, found.rung) == (E.RANK_DIED, 1, 3, "in-place")
    assert found.seconds() == {"unnoticed": 25, "settling": 1, "repair": 19, "first-step": 10}
    assert not found.given_up


def test_a_node_loss_is_repaired_by_another_placement() -> None:
    moments = [
        told(0, E.TRAINING_STARTED),
        told(25, E.NODE_LOST, step=2),
        told(27, E.ATTEMPT_ENDED, outcome="node-lost"),
        told(30, E.FINISHED, outcome="node-lost"),
        told(40, E.PLACED, None),
        told(50, E.TRAINING_STARTED, 2),
    ]
    (found,) = repairs(moments, steps(1, 2, begin_s=0), over=False)
    assert found.rung == "re-placed"
    assert found.seconds() == {"unnoticed": 5, "settling": 2, "repair": 23}
    assert found.stepped_us is None


def test_a_supervisor_is_missed_and_its_end_is_settled_at_once() -> None:
    moments = [told(0, E.TRAINING_STARTED), told(33, E.SUPERVISOR_LOST, None)]
    (found,) = repairs(moments, steps(1, 2, begin_s=0), over=False)
    assert (found.attempt, found.step, found.settled_us) == (1, 2, 33 * S)
    assert found.seconds() == {"unnoticed": 13, "settling": 0}


def test_a_fault_in_a_repair_begins_one_of_its_own() -> None:
    moments = [
        told(0, E.TRAINING_STARTED),
        told(10, E.RANK_DIED),
        told(11, E.ATTEMPT_ENDED, outcome="signal"),
        told(12, E.REPAIR_STARTED, 2, rung="in-place"),
        told(20, E.RANK_DIED, 2),
        told(21, E.ATTEMPT_ENDED, 2, outcome="signal"),
        told(22, E.REPAIR_STARTED, 3, rung="in-place"),
        told(30, E.TRAINING_STARTED, 3),
    ]
    first, second = repairs(moments, [], over=False)
    assert (first.trained_us, second.trained_us) == (None, 30 * S)
    assert second.seconds() == {"settling": 1, "repair": 9}


def test_a_job_that_is_given_up() -> None:
    died: list[Moment] = [told(0, E.TRAINING_STARTED), told(10, E.RANK_DIED)]
    (found,) = repairs([*died, told(12, E.FINISHED, outcome="failed")], [], over=True)
    assert found.given_up
    (found,) = repairs(died, [], over=True)
    assert found.given_up
    (found,) = repairs(died, [], over=False)
    assert not found.given_up
