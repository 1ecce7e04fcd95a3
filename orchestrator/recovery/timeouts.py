"""Every deadline of a gang in one place: those of a running one are derived, so that their relations hold whatever a
user sets; those of its start and its end are constants, whose relations a test checks.

watch < agent lease < supervisor lease           a live parent is never taken for dead
verdict < settle < agent lease                   a lost agent is told before its followers pass for the cause, and a
                                                 death is explained before its agent would give up
collective <= step silence                       the collective says who hangs before the supervisor stops waiting
hang <= step silence                             what is known of a job's pace only shortens the wait
call > watch                                     a long poll is not mistaken for a lost one
zygote < agent < reap; agent < call              who ends something outlasts what ends in it, and learns that it is done
rank drain < settle                              the end of a rank is known before its cause is judged
longest end < last work, cancel                  a supervisor that ends its gang is not cut short
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.spec.sections import RecoverySpec

CONTROL_CALL_S = 10.0
"""Longest wait of the control plane for a supervisor's or the cluster's answer to one question."""
SUPERVISOR_START_S = 30.0
"""Until Ray has taken the order for a supervisor: it looks at all nodes and exports the class first."""
CANCEL_S = 60.0
"""A supervisor that has not ended a cancelled job after this is ended by force."""
SUPERVISOR_SILENT_S = 60.0
"""A supervisor that has answered before and then does not for this long, though the cluster answers, is taken for lost
and ended by force: stopped by a signal or stuck for good. Its agents' leases are over by then."""
SUPERVISOR_SILENT_AT_START_S = 180.0
"""One that has never answered: Ray may still be starting its process."""
LAST_WORK_S = 60.0
"""Time of a supervisor to give the slots back once its lease has run out."""
RANK_DRAIN_S = 1.0
"""Wait for the rest of what an ended rank had sent, should something it started keep its socket open."""
ZYGOTE_END_S = 5.0
"""Time of a zygote to end its ranks, which are killed, and itself; then it is killed, and the kernel ends the ranks."""
AGENT_END_S = 8.0
"""Time of an agent to end its zygote before the reaper kills the agent."""
REAP_S = 20.0
"""Time of the reaper for a whole gang; what is left then is reaped again in a later round."""
LONGEST_ACT_S = max(SUPERVISOR_START_S, REAP_S + CONTROL_CALL_S)
"""No act of the controller takes longer; one that stops begins no other."""
CONTROLLER_END_S = LONGEST_ACT_S + CONTROL_CALL_S
"""From SIGTERM to the end of a controller: acts under way end, then the round, then the lease is given back. Whoever
stops a controller waits this long before it is killed (which loses nothing, but leaves the lease to run out)."""

VAULT_START_S = 60.0
"""Until the vault of a node is up; an attempt that has waited this long begins without it."""
VAULT_CALL_S = 5.0
"""Longest wait for a vault that was up before."""
VAULT_HOLD_S = 1800.0
"""A vault without a rank of its job for this long ends itself: the job is gone, or waits so long for a place that its
storage will do."""

REPLACE_AGAIN_S = 300.0
"""Until a slow node that nothing could take over from is asked about again."""

PROBE_START_S = 120.0
"""Until the actors that measure the network are up: Ray starts a process for each, which imports torch."""
PROBE_MEET_S = 20.0
"""Until the two of a pair are connected."""


def probe_pair_s(seconds: float) -> float:
    """For a pair that measures each way for about `seconds`: it finds out how much to send first, and the rate may
    fall while others begin."""
    return PROBE_MEET_S + 8 * seconds


@dataclass(frozen=True, slots=True)
class BaseTimes:
    """The few numbers that everything else follows from. Seconds."""

    watch_s: float = 2.0
    """Longest time an agent keeps a supervisor's question open: the period of renewal of its lease."""
    missed_watches: int = 10
    """Periods without renewal after which an agent takes its supervisor for dead."""
    control_plane_away_s: float = 3600.0
    """Training goes on this long without a control plane."""
    agents_start_s: float = 180.0
    """Placement group reserved and agents up: Ray starts a worker in seconds, on a busy machine in tens of them."""
    ranks_start_s: float = 300.0
    """From the order to fork to the hello of every rank; imports and the wait for a slot still held are in it."""
    kill_grace_s: float = 10.0
    """Time a rank has to stop by itself when asked, before SIGKILL."""
    move_s: float = 30.0
    """Wait for the controller's answer to lost nodes: a new leader is there in less. Then the gang ends, and the whole
    job is placed again."""
    settle_s: float = 4.0
    """Time a root cause has to show after ranks that lost a peer have died; a dead node is seen in 1.5 to 2.5 s."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The derived chain. Seconds."""

    watch_s: float
    call_s: float
    """Deadline of a call to an agent that answers at once."""
    agent_lease_s: float
    supervisor_lease_s: float
    agents_start_s: float
    ranks_start_s: float
    build_s: float
    """From hello to ready: model, data and checkpoint load."""
    collective_s: float
    silence_s: float
    """Longest time in which no rank gets on before the attempt is ended as hung, whatever it does."""
    hang_after_s: float
    """Shortest such time, for a job whose pace is known and whose ranks are in a step."""
    hang_factor: float
    """And as a multiple of its median step."""
    kill_grace_s: float
    move_s: float
    settle_s: float
    verdict_s: float
    """Time in which a lost agent's node has to show that it is lost too."""

    @classmethod
    def of(cls, recovery: RecoverySpec, base: BaseTimes | None = None) -> Timeouts:
        base = base or BaseTimes()
        lease = max(base.watch_s * base.missed_watches, base.settle_s + 2 * base.watch_s)
        collective = recovery.step_timeout_s
        # Forward, backward and optimizer may each wait once before every rank has raised.
        silence = max(1800.0, 3 * collective)
        return cls(
            watch_s=base.watch_s,
            call_s=max(10.0, 5 * base.watch_s),
            agent_lease_s=lease,
            supervisor_lease_s=max(base.control_plane_away_s, 2 * lease),
            agents_start_s=base.agents_start_s,
            ranks_start_s=base.ranks_start_s,
            build_s=max(1800.0, 3 * collective),
            collective_s=collective,
            silence_s=silence,
            hang_after_s=min(recovery.hang_after_s, silence),
            hang_factor=recovery.hang_factor,
            kill_grace_s=base.kill_grace_s,
            move_s=base.move_s,
            settle_s=base.settle_s,
            verdict_s=0.75 * base.settle_s,
        )

    @property
    def longest_end_s(self) -> float:
        """Longest time in which a supervisor ends a running gang: asks the ranks to stop and gives them time, keeps
        their logs, ends the agents, gives the reservation back. Each of the four is a call that may find nobody."""
        return self.kill_grace_s + 4 * self.call_s
