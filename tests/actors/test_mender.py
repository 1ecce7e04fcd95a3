"""How repairs are carried out: answers of the controller, spares that fail, nodes that are lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from actors.gang import StartFailedError
from actors.inbox import EndedOnRequestError, EndRequest, Inbox
from actors.mender import GangOverError, Mender
from orchestrator.health.policy import Replacement
from orchestrator.lifecycle.reports import EventKind, GangOrder, Move, NoMove, Outcome, Unwanted
from orchestrator.lifecycle.states import Reason
from orchestrator.recovery.failure import Cause, Failure, NodeLoss
from orchestrator.recovery.timeouts import Timeouts
from orchestrator.spec.sections import RecoverySpec
from orchestrator.topology.fabric import Fabric, Node, Slot

SLOTS = tuple(Slot(f"n{i}", 0) for i in range(3))
FABRIC = Fabric(tuple(Node(f"n{i}", 1) for i in range(9)))
ORDER = GangOrder("job", 1, 1, 0, (0, 0), {}, SLOTS, FABRIC, "/storage", 1)


class FakeGang:
    """Agents on the nodes of its slots; on some nodes none ever starts."""

    def __init__(self, broken: Collection[str] = ()) -> None:
        self.broken = set(broken)
        self.nodes = tuple(slot.node for slot in SLOTS)
        self.living = set(self.nodes)
        self.started: list[str] = []
        self.prepared: set[str] = set()
        self.refuses: set[str] = set()
        """Nodes on which an agent that ended cannot be started again."""

    def watches(self, node: str) -> bool:
        return node in self.living

    async def prepare(self, slots: Sequence[Slot]) -> None:
        self.prepared = {slot.node for slot in slots}

    async def move(self, slots: Sequence[Slot]) -> None:
        before = set(self.nodes)
        self.nodes = tuple(slot.node for slot in slots)
        new = [node for node in self.nodes if node not in before]
        self.started += new
        self.living = {node for node in self.nodes if node in self.living or node in new} - self.broken
        if self.broken.intersection(new):
            raise StartFailedError("the agent was not up after 180 s")

    async def replace_agents(self, hanging: Collection[str]) -> None:
        wanted = [node for node in self.nodes if node in hanging or node not in self.living]
        self.started += wanted
        self.living.update(set(wanted) - self.refuses)
        if self.refuses.intersection(wanted):
            raise StartFailedError(f"no agent on {', '.join(wanted)}")


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the mender tells of it through the supervisor's answers alone
        await asyncio.sleep(0.001)


class Scene:
    """A mender, and a controller that answers each question by the next of `answers`."""

    def __init__(self, gang: FakeGang, recovery: RecoverySpec | None = None, move_s: float = 20.0) -> None:
        recovery = recovery or RecoverySpec()
        self.events: list[tuple[EventKind, Mapping[str, Any]]] = []
        self.asked: list[tuple[str, ...]] = []
        self.inbox = Inbox()
        self.gang: Any = gang
        times = replace(Timeouts.of(recovery), move_s=move_s)
        self.mender = Mender(ORDER, self.gang, self.inbox, times, recovery=recovery, write=self._write)

    def _write(
        self, kind: EventKind, message: str, data: Mapping[str, Any] | None = None, at: float | None = None
    ) -> None:
        self.events.append((kind, dict(data or {})))

    @property
    def rungs(self) -> list[str]:
        return [data["rung"] for kind, data in self.events if kind is EventKind.REPAIR_STARTED]

    def run(self, failure: Failure, *answers: Callable[[], Move | NoMove | None]) -> None:
        async def controller() -> None:
            for answer in answers:
                await until(lambda: bool(self.mender.lost_nodes))
                self.asked.append(self.mender.lost_nodes)
                revision = self.mender.revision
                if (told := answer()) is not None:
                    self.mender.take_move(told)
                await until(
                    lambda seen=(revision, self.asked[-1]): (
                        seen != (self.mender.revision, self.mender.lost_nodes)
                    )
                )

        async def both() -> None:
            asking = asyncio.ensure_future(controller())
            try:
                await self.mender.repair(failure, 5)
            finally:
                asking.cancel()

        asyncio.run(asyncio.wait_for(both(), 30))

    def to(self, *nodes: str, rung: str = "spare") -> Callable[[], Move]:
        """The next change: the ranks on these nodes."""
        return lambda: Move(
            self.mender.revision + 1, rung, tuple(Slot(node, 0) for node in nodes), FABRIC, "Ranks move."
        )

    def refused(self) -> NoMove:
        return NoMove(self.mender.revision + 1, "no node of leaf l0 is free to stand in for n1")


def lost(*nodes: str) -> Failure:
    names = ", ".join(nodes)
    return Failure(Cause.NODE_LOST, 1.0, f"node {names} is lost", None, nodes[0], "", nodes)


def test_the_spare_is_taken_and_the_others_stay() -> None:
    gang = FakeGang()
    gang.living.discard("n1")
    scene = Scene(gang)
    scene.run(lost("n1"), scene.to("n0", "n5", "n2"))
    assert scene.asked == [("n1",)]
    assert gang.started == ["n5"]
    assert [slot.node for slot in scene.mender.slots] == ["n0", "n5", "n2"]
    assert (scene.mender.revision, scene.mender.lost_nodes) == (1, ())
    assert scene.mender.history.restarts_used == 1
    ((_, data),) = scene.events
    assert (data["rung"], data["passed_over"]) == ("spare", ["in-place: node n1 is lost"])


def test_a_spare_that_does_not_start_is_asked_for_again_and_never_twice() -> None:
    gang = FakeGang(broken=["n5"])
    gang.living.discard("n1")
    scene = Scene(gang)
    scene.run(lost("n1"), scene.to("n0", "n5", "n2"), scene.to("n0", "n6", "n2"))
    assert scene.asked == [("n1",), ("n1", "n5")]
    assert (gang.nodes, scene.mender.revision) == (("n0", "n6", "n2"), 2)
    assert scene.rungs == ["spare", "spare"]
    assert scene.events[1][1]["passed_over"][1] == (
        "spare: node n5 did not start: the agent was not up after 180 s"
    )


def test_a_node_that_is_lost_while_the_controller_is_asked_is_asked_for_too() -> None:
    gang = FakeGang()
    gang.living.discard("n1")
    scene = Scene(gang)

    def another() -> None:
        gang.living.discard("n2")
        scene.inbox.put(NodeLoss("n2", 2.0))

    scene.run(lost("n1"), another, scene.to("n0", "n5", "n6"))
    assert scene.asked == [("n1",), ("n1", "n2")]
    assert gang.nodes == ("n0", "n5", "n6")


def test_a_change_that_leaves_a_lost_node_in_place_is_carried_out_and_asked_about_again() -> None:
    """The controller had decided about n1 before it heard of n2."""
    gang = FakeGang()
    gang.living -= {"n1", "n2"}
    scene = Scene(gang)
    scene.run(lost("n1", "n2"), scene.to("n0", "n5", "n2"), scene.to("n0", "n5", "n6"))
    assert (gang.started, scene.mender.revision) == (["n5", "n6"], 2)


def test_without_a_place_the_gang_ends_and_says_why() -> None:
    scene = Scene(FakeGang())
    with pytest.raises(GangOverError) as over:
        scene.run(lost("n1"), scene.refused)
    assert over.value.verdict == (
        Outcome.NODE_LOST,
        Reason.NODE_LOST,
        "Lost n1; a new placement is needed: no node of leaf l0 is free to stand in for n1.",
    )
    assert scene.rungs == ["requeue"]
    assert scene.mender.history.restarts_used == 0, "the controller counts it when it places the job again"


def test_a_controller_that_is_away_is_waited_for_until_the_deadline() -> None:
    scene = Scene(FakeGang(), move_s=0.2)
    with pytest.raises(GangOverError, match=r"the controller gave no answer for 0 s"):
        scene.run(lost("n1"))


def test_answers_to_other_questions_are_dropped() -> None:
    scene = Scene(FakeGang())
    scene.mender.take_move(scene.to("n8", "n8", "n8")())
    stale = Move(5, "spare", SLOTS, FABRIC, "An answer of a revision that never was.")

    def wrong() -> None:
        scene.mender.take_move(stale)
        scene.inbox.put(stale)
        scene.inbox.put(NodeLoss("n2", 2.0))  # ends the wait for this question

    scene.run(lost("n1"), wrong, scene.to("n0", "n5", "n6"))
    assert scene.gang.nodes == ("n0", "n5", "n6")


def test_a_job_that_is_to_end_waits_for_nobody() -> None:
    scene = Scene(FakeGang())

    def end() -> None:
        scene.inbox.ask(EndRequest(Outcome.CANCELLED, Reason.CANCELLED_BY_USER, "Cancelled.", 0.0))

    with pytest.raises(EndedOnRequestError):
        scene.run(lost("n1"), end)


def test_an_agent_that_cannot_be_started_again_makes_its_node_a_lost_one() -> None:
    """A failure during repair: rung by rung."""
    gang = FakeGang()
    gang.living.discard("n1")
    gang.refuses.add("n1")
    scene = Scene(gang)
    died = Failure(Cause.SIGNAL, 1.0, "rank 0 on n0 was ended by SIGKILL", 0, "n0")
    scene.run(died, scene.to("n0", "n5", "n2"))
    assert scene.rungs == ["in-place", "spare"]
    assert gang.nodes == ("n0", "n5", "n2")


def test_an_outage_lasts_from_the_first_failure_to_the_first_step_after_it() -> None:
    scene = Scene(FakeGang())
    mender = scene.mender
    mender.broke(100.0)
    scene.run(Failure(Cause.SIGNAL, 100.0, "rank 0 on n0 was ended by SIGKILL", 0, "n0"))
    mender.stepped(5, 101.0)  # said before the ranks were ended
    mender.broke(103.0)
    scene.run(lost("n1"), scene.to("n0", "n5", "n2"))
    assert mender.ready() is not None
    mender.stepped(6, 107.5)
    mender.stepped(7, 108.0)
    kind, data = scene.events[-1]
    assert kind is EventKind.REPAIRED
    assert (data["rungs"], data["seconds"], data["step"]) == (["in-place", "spare"], 7.5, 6)
    assert [kind for kind, _ in scene.events].count(EventKind.REPAIRED) == 1


SLOW = Replacement("n1", (1,), 500.0, "Rank 1 is slow")
LEFT = Move(1, "spare", (SLOTS[0], Slot("n5", 0), SLOTS[2]), FABRIC, "Rank 1 goes to n5.")


def told_while_it_trains(scene: Scene) -> None:
    scene.mender.ready()
    scene.mender.take_move(LEFT)


def test_a_slow_node_is_left_once_its_ranks_have_made_way() -> None:
    scene = Scene(FakeGang())

    async def leave() -> None:
        told_while_it_trains(scene)
        handover = scene.mender.handover
        assert not handover.is_prepared
        handover.prepare()
        await until(lambda: handover.is_prepared)
        assert scene.gang.prepared == {"n0", "n5", "n2"}
        assert scene.gang.nodes == ("n0", "n1", "n2"), "the ranks go on meanwhile"
        scene.mender.asked_to_make_way(100.0)
        await scene.mender.hand_over()

    asyncio.run(leave())
    assert (scene.gang.nodes, scene.mender.revision) == (("n0", "n5", "n2"), 1)
    assert (scene.mender.history.replaced, scene.mender.history.restarts_used) == (1, 0)
    assert scene.mender.ready() is not None
    scene.mender.stepped(6, 104.0)
    kind, data = scene.events[-1]
    assert (kind, data["planned"], data["rungs"], data["seconds"]) == (
        EventKind.REPAIRED,
        True,
        ["spare"],
        4.0,
    )


def test_a_failure_before_the_slow_node_is_left_finds_the_stored_place() -> None:
    """What the controller has stored holds: the ranks go there, and nothing is asked."""
    scene = Scene(FakeGang())
    told_while_it_trains(scene)
    scene.mender.broke(1.0)
    scene.run(lost("n1"))
    assert (scene.gang.nodes, scene.mender.revision, scene.rungs) == (("n0", "n5", "n2"), 1, ["spare"])


def test_a_spare_for_a_slow_node_that_does_not_start_is_asked_for_again() -> None:
    scene = Scene(FakeGang(broken=["n5"]))
    told_while_it_trains(scene)
    scene.run(
        Failure(Cause.SIGNAL, 1.0, "rank 0 on n0 was ended by SIGKILL", 0, "n0"), scene.to("n0", "n6", "n2")
    )
    assert scene.asked == [("n5",)]
    assert (scene.gang.nodes, scene.mender.revision) == (("n0", "n6", "n2"), 2)


def test_no_answer_about_a_slow_node_passes_for_one_about_lost_ones() -> None:
    scene = Scene(FakeGang())

    def late() -> None:
        scene.mender.take_move(NoMove(1, "no node is free", slow=True))
        scene.inbox.put(NodeLoss("n2", 2.0))  # ends the wait for this question

    scene.run(lost("n1"), late, scene.to("n0", "n5", "n6"))
    assert scene.gang.nodes == ("n0", "n5", "n6")


def test_when_a_slow_node_is_asked_about() -> None:
    scene = Scene(FakeGang())
    handover = scene.mender.handover
    assert handover.unwanted(None, replaced=0, saves=True) is None
    assert handover.unwanted(SLOW, replaced=0, saves=False) is None, "the ranks could not save"
    assert handover.unwanted(SLOW, replaced=2, saves=True) == Unwanted("n1", "Rank 1 is slow")
    scene.mender.take_move(NoMove(1, "no node is free", slow=True))
    assert handover.unwanted(SLOW, replaced=0, saves=True) is None, "not again so soon"
    assert scene.events == [(EventKind.REPLACEMENT_PUT_OFF, {"node": "n1", "reason": "no node is free"})]


def test_a_job_replaces_no_more_than_three_nodes() -> None:
    scene = Scene(FakeGang())
    for _ in range(2):
        assert scene.mender.handover.unwanted(SLOW, replaced=3, saves=True) is None
    assert [data["reason"] for _, data in scene.events] == [
        "3 nodes of this job have been replaced, which is the most"
    ]
