"""Nothing is left: after failure, cancel and supervisor kill no rank lives and all slots are free.

After success: test_gang.py; after the loss of a node: test_node_loss.py.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from actors import naming, processes
from actors.launcher import RayLauncher
from actors.ray_environment import NAMESPACE
from orchestrator.lifecycle.ports import ClusterUnreachableError, GangRef, SupervisorGoneError
from orchestrator.lifecycle.reports import EventKind, GangReport, Outcome
from orchestrator.lifecycle.states import Reason
from orchestrator.topology.fabric import Slot

pytestmark = pytest.mark.timeout(1500)

TOY = "toy_program:run"
LONG = {"steps": 100_000, "pause_s": 0.05}


def test_failure(driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]) -> None:
    spec = {**small_spec, "recovery": {**small_spec["recovery"], "max_restarts_at_step": 2}}
    driver.start(leaf_slots, spec, program=TOY, extras={"steps": 9, "raise_rank": 3, "raise_step": 3})
    report = driver.end()
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.USER_ERROR)
    assert "ValueError: a defect of the program at step 3" in report.message
    assert "toy_program.py" in report.message, "the traceback of the rank that died first"
    deaths = [event for event in driver.events if event.kind is EventKind.RANK_DIED]
    # A death that overtakes rank 0's report of the step before is one at an earlier step; there may be one of those.
    assert len(deaths) in (2, 3)
    assert {(death.data["rank"], death.data["cause"]) for death in deaths} == {(3, "exception")}
    assert report.deaths_at_step == (2, 2)
    failing = next(tail for tail in report.logs if tail.rank == 3 and tail.attempt == report.attempt)
    assert "ValueError: a defect of the program at step 3" in failing.text
    driver.assert_all_free()


def test_cancel(driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]) -> None:
    driver.start(leaf_slots, small_spec, program=TOY, extras=LONG)
    driver.until(lambda report: report.step >= 2, "two steps are done")
    driver.launcher.cancel(driver.ref, fencing_token=driver.token)
    report = driver.end()
    assert (report.outcome, report.reason) == (Outcome.CANCELLED, Reason.CANCELLED_BY_USER)
    driver.assert_all_free()


def test_a_vacated_gang_ends_by_itself_and_the_next_one_goes_on(
    launcher: Any, new_driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    """What preemption and time limits do: ranks end at a step's end, within the grace time, and are not killed."""
    first = new_driver(launcher)
    first.start(leaf_slots, small_spec, program=TOY, extras=LONG)
    first.until(lambda report: report.step >= 2, "two steps are done")
    launcher.vacate(first.ref, grace_s=120.0, fencing_token=first.token)
    report = first.end()
    assert (report.outcome, report.reason) == (Outcome.VACATED, Reason.PREEMPTED)
    steps = "1 step" if report.step == 1 else f"{report.step} steps"
    assert report.message == (
        f"The slots were given back. Its ranks ended by themselves and told of no checkpoint of the last {steps}."
    )
    assert first.event(EventKind.ATTEMPT_ENDED).data["outcome"] == "vacated"
    assert all("ended after" in tail.text for tail in report.logs), "every rank came to its own end"
    first.assert_all_free()
    second = new_driver(launcher, job_id=first.ref.job_id, incarnation=2)
    second.start(leaf_slots, small_spec, program=TOY, extras={"steps": report.step + 1}, first_attempt=2)
    assert second.end().outcome is Outcome.SUCCEEDED
    assert [record.step for record in second.steps] == [report.step + 1]


def test_row_34_a_rank_that_does_not_end_is_stopped_after_its_grace(
    driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    driver.start(leaf_slots, small_spec, program=TOY, extras={"steps": 9, "pause_s": 600.0})
    driver.until(lambda report: report.ranks, "the ranks run")
    driver.launcher.vacate(driver.ref, grace_s=1.0, fencing_token=driver.token)
    report = driver.end()
    assert (report.outcome, report.step) == (Outcome.VACATED, 0)
    driver.assert_all_free()


def test_row_38_supervisor_killed_and_nobody_reaps(
    driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...], wait_for: Any
) -> None:
    driver.start(leaf_slots, small_spec, program=TOY, extras=LONG)
    driver.until(lambda report: report.step >= 2, "two steps are done")
    kill_actor(naming.gang_name(driver.ref))
    wait_for(lambda: gone(driver), "the supervisor is known to be gone")
    wait_for(
        lambda: not any(processes.alive(pid) for pid in driver.rank_pids()),
        "the agents' leases ended the ranks",
    )
    assert driver.ref in driver.launcher.gangs(), "the placement group outlives the supervisor"
    driver.assert_all_free()


@pytest.mark.slow
@pytest.mark.parametrize("victims", [(3,), (0, 3)], ids=["one", "all"])
def test_killed_agents_are_replaced_on_their_nodes(
    driver: Any,
    small_spec: dict[str, Any],
    leaf_slots: tuple[Slot, ...],
    wait_for: Any,
    victims: tuple[int, ...],
) -> None:
    driver.start(leaf_slots, small_spec, program=TOY, extras={"steps": 80, "pause_s": 0.1})
    before = driver.until(lambda report: report.step >= 2, "two steps are done")
    agents = {parent(parent(before.ranks[rank].pid)) for rank in victims}
    assert len(agents) == len(victims)
    for pid in agents:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not processes.alive(before.ranks[3].pid), "the ranks ended with their agent")
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert report.restarts_used == 1
    assert driver.event(EventKind.RANK_DIED).data["cause"] == "agent-lost"
    driver.assert_all_free()


def test_stale_leader_is_refused(
    driver: Any, small_spec: dict[str, Any], leaf_slots: tuple[Slot, ...]
) -> None:
    from orchestrator.lifecycle.ports import FencedError

    driver.token = 7
    driver.start(leaf_slots, small_spec, program=TOY, extras=LONG)
    driver.until(lambda report: True, "the supervisor answers")
    with pytest.raises(FencedError, match="token 6 is older than 7"):
        driver.launcher.poll(driver.ref, event_cursor=0, step_cursor=0, fencing_token=6)
    with pytest.raises(FencedError):
        driver.launcher.cancel(driver.ref, fencing_token=6)


def test_unknown_gang(launcher: RayLauncher) -> None:
    nobody = GangRef("never-started", 1)
    with pytest.raises(SupervisorGoneError):
        launcher.poll(nobody, event_cursor=0, step_cursor=0, fencing_token=1)
    assert launcher.reap(nobody) is True


def kill_actor(name: str) -> None:
    """SIGKILL to the process of a named actor."""
    import ray

    actor = ray.get_actor(name, NAMESPACE)
    pid = ray.get(actor.__ray_call__.remote(lambda self: os.getpid()), timeout=30)
    os.kill(pid, signal.SIGKILL)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def gone(driver: Any) -> bool:
    try:
        report: GangReport = driver.poll()
    except SupervisorGoneError:
        return True
    except ClusterUnreachableError:
        return False
    assert report.outcome is None
    return False
