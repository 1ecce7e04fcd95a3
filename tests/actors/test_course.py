"""What a course says of agents that did not fork their ranks: what is known, and no guess."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from actors.attempt import Attempt
from actors.course import Course, kept
from actors.gang import RanksNotStartedError
from actors.messages import Note, NoteKind, RankOrder
from orchestrator.lifecycle.reports import GangOrder
from orchestrator.recovery.failure import Cause, Failure
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.job import JobSpec
from orchestrator.topology.fabric import Fabric, Node, Slot

SPEC = {"name": "j", "parallelism": {"dp": 4}, "training": {"steps": 3}}
SLOTS = tuple(Slot(f"n{i}", 0) for i in range(4))
ORDER = GangOrder(
    "job", 1, 1, 0, (0, 0), SPEC, SLOTS, Fabric(tuple(Node(s.node, 1) for s in SLOTS)), "/storage", 1
)


class FakeGang:
    """Agents of which some do not fork."""

    def __init__(self, not_started: dict[str, str]) -> None:
        self.not_started = not_started
        self.replaced: set[str] = set()
        self.nodes = tuple(slot.node for slot in SLOTS)

    async def start_ranks(self, order: RankOrder) -> RankOrder:
        raise RanksNotStartedError(self.not_started)

    def watches(self, node: str) -> bool:
        return True

    async def replace_agents(self, hanging: set[str]) -> None:
        self.replaced = hanging


def failure_of(not_started: dict[str, str]) -> tuple[Failure, set[str]]:
    """The failure, and the nodes whose agents are replaced after it."""

    async def scenario() -> tuple[Failure, set[str]]:
        times = replace(Timeouts.of(JobSpec.model_validate(SPEC).recovery), settle_s=0.0)
        course: Any = Course(ORDER, times)
        course._gang = course.mender._gang = gang = FakeGang(not_started)
        failure = await course._drive(Attempt(1, SLOTS))
        await course.mender.repair(failure, 0)
        return failure, gang.replaced

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def test_the_agent_that_gave_no_answer_is_named_not_the_first() -> None:
    failure, replaced = failure_of({"n2": "gave no answer for 10 s"})
    assert (failure.cause, failure.node) == (Cause.AGENT_LOST, "n2")
    assert failure.summary == "the agent of node n2 gave no answer for 10 s"
    assert replaced == {"n2"}


def test_several_are_named_and_all_are_replaced() -> None:
    failure, replaced = failure_of({f"n{i}": "gave no answer for 10 s" for i in range(4)})
    assert failure.summary.startswith("the agent of node n0 gave no answer for 10 s; the agent of node n1 ")
    assert failure.summary.endswith("; and 1 more")
    assert replaced == {"n0", "n1", "n2", "n3"}


def test_what_a_gang_kept_that_was_to_save_is_told_as_it_is() -> None:
    assert kept(12, 12, 30.0, by_themselves=True) == " The checkpoint of step 12 has all of it."
    assert kept(12, 10, 30.0, by_themselves=False) == (
        " Not all ranks had saved and ended within 30 s: 2 steps since step 10 are lost."
    )
    assert kept(12, 11, 30.0, by_themselves=True) == (
        " Its ranks ended by themselves and told of no checkpoint of the last 1 step."
    )


def test_a_repair_is_told_with_the_step_that_was_finished_after_it() -> None:
    """A job that had come to step 235 and begins at 0 again is whole with step 1."""
    course: Any = Course(ORDER, Timeouts.of(JobSpec.model_validate(SPEC).recovery))
    course.step, told = 235, []
    course.mender.stepped = lambda step, at: told.append((step, at))
    record = {"loss": 1.0, "grad_norm": 1.0, "learning_rate": 0.1, "tokens": 8, "step_time_s": 0.5}
    course._take(Attempt(2, SLOTS), Note(1, 7.0, 2, 0, NoteKind.STEP, {"step": 1, **record}))
    assert (course.step, told) == (235, [(1, 7.0)])
