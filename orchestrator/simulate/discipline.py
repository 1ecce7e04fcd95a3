"""How the simulated queue decides: as production does, or as simpler schedulers do, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.placement.placement import Placement
from orchestrator.queue.admission import Admission, Cluster, Decision, Start, expired
from orchestrator.queue.claims import Waiting
from orchestrator.queue.order import Shares
from orchestrator.queue.policy import QueuePolicy, read_policy_file
from orchestrator.queue.reservation import Reservation, Solve
from orchestrator.simulate.jobs import Shape
from orchestrator.spec.sections import AxisRule, PlacementSpec, Tier
from orchestrator.topology.fabric import Fabric

PRODUCTION, FIFO, FIFO_WITHOUT_TOPOLOGY = "atoll", "fifo", "fifo-without-topology"
NAMES = (PRODUCTION, FIFO, FIFO_WITHOUT_TOPOLOGY)
_ANYWHERE = AxisRule(tier=Tier.ANY)


@dataclass(frozen=True, slots=True)
class Discipline:
    name: str
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    in_turn: bool = False
    """Strictly by submission: nobody starts before a job that waits."""
    topology: bool = True
    """False: the solver knows nodes alone, and no rule of a job; it still fills nodes before it takes another."""

    @classmethod
    def of(cls, text: str) -> Discipline:
        """One of NAMES, or production's with the policy of a file. InvalidPolicyError, also for a file that is not
        there."""
        if text in NAMES:
            return cls(text, in_turn=text != PRODUCTION, topology=text != FIFO_WITHOUT_TOPOLOGY)
        return cls(text, read_policy_file(Path(text)))

    def seen(self, fabric: Fabric) -> Fabric:
        """The fabric as the solver knows it."""
        if self.topology:
            return fabric
        return Fabric(tuple(replace(node, domains={}, islands={}) for node in fabric.nodes))

    def asked(self, shape: Shape) -> Shape:
        if self.topology:
            return shape
        rules = PlacementSpec(tp=_ANYWHERE, cp=_ANYWHERE, pp=_ANYWHERE, dp=_ANYWHERE)
        return replace(shape, rules=rules)

    def decide(
        self,
        waiting: Sequence[Waiting],
        cluster: Cluster,
        solve: Solve,
        *,
        held: Mapping[str, int],
        use: Callable[[], Mapping[str, float]],
        earlier: Sequence[Reservation],
    ) -> tuple[list[Decision], Sequence[Reservation]]:
        """One pass: the decisions, and the reservations to hand to the next pass."""
        if self.in_turn:
            return _in_turn(waiting, cluster, solve), ()
        shares = Shares(self.policy, held, use())
        admission = Admission(cluster, shares, self.policy, solve, earlier=earlier)
        decisions: list[Decision] = list(expired(cluster.running, cluster.now_s))
        decisions += admission.decisions(waiting)
        return decisions, admission.reservations


def _in_turn(waiting: Sequence[Waiting], cluster: Cluster, solve: Solve) -> list[Decision]:
    """First come, first served: one that does not fit now keeps back all behind it, one that never fits nobody."""
    room, found = cluster.room, list[Decision]()
    for job in waiting:
        answer = solve(job.claim.job_id, room)
        if isinstance(answer, Placement):
            room = room.without(answer)
            found.append(Start(job.claim.job_id, answer, "It was its turn."))
        elif answer.ever:
            break
    return found
