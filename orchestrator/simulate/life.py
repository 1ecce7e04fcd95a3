"""One simulated job: what it has done, and what becomes of its work when its gang ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.lifecycle.decide import Verdict, conclude
from orchestrator.lifecycle.reports import GangPhase, GangReport, Outcome
from orchestrator.lifecycle.states import JobState, Reason
from orchestrator.lifecycle.view import GangView, JobView
from orchestrator.placement.placement import Placement
from orchestrator.queue.claims import Waiting
from orchestrator.recovery.failure import Cause, Failure
from orchestrator.recovery.ladder import GiveUp, History, next_repair
from orchestrator.simulate.jobs import Assumptions, SimulatedJob

_THEN = datetime.fromtimestamp(0, UTC)


@dataclass
class Life:
    job: SimulatedJob
    state: JobState = JobState.QUEUED
    message: str = ""
    done_s: float = 0.0
    """Work that is saved or being done; what the last placement had reached when it ended."""
    held_s: float = 0.0
    """In placements that are over."""
    incarnation: int = 0
    placed_s: float = 0.0
    first_start_s: float | None = None
    ended_s: float | None = None
    placement: Placement | None = None
    history: History = field(default_factory=History)
    vacate: tuple[Reason, str] | None = None
    """Why it was told to go, while it is going."""
    repaired: bool = False
    """Its next placement counts as a repair."""

    def waiting(self, now_s: float) -> Waiting:
        waited_s = now_s - self.job.submitted_s - self.held_s
        return Waiting(self.job.claim, self.job.submitted_s, waited_s, self.held_s)

    def start(self, placement: Placement, now_s: float) -> None:
        self.placement, self.placed_s, self.vacate = placement, now_s, None
        self.incarnation += 1
        self.state, self.message = JobState.RUNNING, ""
        if self.first_start_s is None:
            self.first_start_s = now_s
        if self.repaired:
            self.history = self.history.repaired()
            self.repaired = False

    @property
    def counted_s(self) -> float:
        """Of `held_s` what the work of the simulation took: since its beginning, and since the newest checkpoint before
        it, whose work is done again or goes on."""
        before = self.job.placed
        return self.held_s - self.job.held_s + (before.unsaved_s if before is not None else 0.0)

    def trained_s(self, now_s: float, start_s: float) -> float:
        """Work of this placement so far."""
        return max(0.0, min(now_s - self.placed_s - start_s, self.job.work_s - self.done_s))

    def succeed(self, now_s: float) -> Verdict:
        verdict = self._conclude(Outcome.SUCCEEDED, Reason.COMPLETED, "Completed.")
        return self._leave(verdict, self.job.work_s, now_s)

    def vacated(self, now_s: float, asked_s: float, given: Assumptions) -> Verdict:
        """It was told to go at `asked_s` and is gone now."""
        reached_s = self.done_s + self.trained_s(asked_s, given.start_s)
        if self.job.claim.grace_s < given.save_s:
            reached_s = self._last_checkpoint_s(reached_s, given)
        verdict = self._conclude(Outcome.VACATED, Reason.PREEMPTED, "The slots were given back.", reached_s)
        return self._leave(verdict, reached_s, now_s)

    def lose_node(self, node: str, now_s: float, given: Assumptions) -> Verdict:
        """The ladder's repair, and the state that follows. A step of the ladder is a second of work."""
        reached_s = self.done_s + self.trained_s(now_s, given.start_s)
        failure = Failure(Cause.NODE_LOST, now_s, f"node {node} is lost", node=node, lost_nodes=(node,))
        repair = next_repair(failure, int(reached_s), self.history, self.job.recovery)
        self.history = repair.history
        if isinstance(repair, GiveUp):
            verdict = self._conclude(Outcome.FAILED, repair.reason, repair.message)
        else:
            message = f"Lost {node}; a new placement is needed."
            verdict = self._conclude(Outcome.NODE_LOST, Reason.NODE_LOST, message)
        self.repaired = verdict.state is JobState.RECOVERING
        return self._leave(verdict, self._last_checkpoint_s(reached_s, given), now_s)

    def _last_checkpoint_s(self, reached_s: float, given: Assumptions) -> float:
        """Work that a checkpoint holds: never less than what this placement began with."""
        if given.checkpoint_every_s <= 0:
            return self.done_s
        return max(self.done_s, reached_s // given.checkpoint_every_s * given.checkpoint_every_s)

    def _leave(self, verdict: Verdict, kept_s: float, now_s: float) -> Verdict:
        self.held_s += now_s - self.placed_s
        self.done_s = kept_s
        self.state, self.message = verdict.state, verdict.message
        if verdict.state.is_terminal:
            self.ended_s = now_s
        return verdict

    def _conclude(self, outcome: Outcome, reason: Reason, message: str, reached_s: float = 0.0) -> Verdict:
        """The controller's own conclusion from what a supervisor would have said. A step is a second of work."""
        claim, used = self.job.claim, self.history.restarts_used
        report = GangReport(
            claim.job_id,
            self.incarnation,
            GangPhase.ENDED,
            self.incarnation,
            used,
            int(reached_s),
            outcome=outcome,
            reason=reason.value,
            message=message,
        )
        return conclude(self._view(), report)

    def _view(self) -> JobView:
        claim, placement = self.job.claim, self.placement
        assert placement is not None
        reason, message = self.vacate or (None, "")
        gang = GangView(
            self.incarnation,
            placement.slots,
            placement.cpus_per_rank,
            started=True,
            ended=False,
            certified=True,
            ranks=(),
            event_cursor=0,
            step_cursor=0,
            placed_at=_THEN,
            vacate_reason=reason,
            vacate_message=message,
        )
        return JobView(
            id=claim.job_id,
            priority=claim.priority,
            size=claim.size,
            reservation=None,
            name=claim.name,
            state=self.state,
            reason=Reason.NONE,
            message=self.message,
            cancel_requested=False,
            step=int(self.done_s),
            restarts=self.history.restarts_used,
            deaths_at_step=(self.history.step, self.history.deaths),
            incarnation=self.incarnation,
            project=claim.project,
            created_at=_THEN,
            gang=gang,
        )
