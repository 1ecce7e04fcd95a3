"""Ledgers of real jobs with real faults, on a real control plane and cluster.

What a job held is added up here from its placements alone (slots x time from `placed_at` to `released_at`), what it
waited for from the times between them; neither knows of events, steps or classes. What its steps took is added up from
its metrics. The ledger has to agree with all three.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from actors.local_cluster import living
from actors.processes import alive
from atoll.answers import Goodput
from atoll.client import AtollClient
from atoll.preflight import free_port
from orchestrator.lifecycle.states import JobState
from orchestrator.store import jobs, placements
from orchestrator.store.engine import Database, open_database
from orchestrator.store.migrations import upgrade
from orchestrator.store.tables import Job

PROGRAMS = Path(__file__).resolve().parents[1] / "actors" / "programs"
PATIENCE_S = 240.0
TOLERANCE = 1e-3
"""The ledger sums to 100.0 % +- 0.1."""


def spec(name: str, **sections: Any) -> dict[str, Any]:
    """Two replicas, 300 steps of some 20 ms, a checkpoint every 20."""
    document = {
        "name": name,
        "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64},
        "parallelism": {"dp": 2},
        "training": {"steps": 300, "global_batch": 8, "sequence_length": 32, "eval_sequences": 2},
        "checkpoint": {"every": 20},
        "recovery": {"hang_after_s": 2.0, "step_timeout_s": 120.0},
    }
    return document | sections


def long(steps: int = 100_000) -> dict[str, Any]:
    return {"steps": steps, "global_batch": 8, "sequence_length": 32, "eval_sequences": 2}


@dataclass
class Site:
    """A control plane on a local cluster."""

    folder: Path
    database: Database
    client: AtollClient

    def submit(self, name: str, **sections: Any) -> str:
        return self.client.submit(spec(name, **sections)).id

    def row(self, job_id: str) -> Job:
        with self.database.read() as session:
            return jobs.get(session, job_id)

    def pids(self, job_id: str) -> list[int]:
        """Of its ranks, as the certificate has them."""
        with self.database.read() as session:
            placement = placements.newest(session, job_id)
        return [facts["pid"] for facts in placement.ranks] if placement else []

    def nodes(self, job_id: str) -> list[str]:
        with self.database.read() as session:
            placement = placements.newest(session, job_id)
        return [node for node, _ in placement.slots] if placement else []

    def until(self, what: str, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := condition()):
            states = [(job.name, job.state, job.step, job.message[:200]) for job in self.client.jobs().items]
            assert time.monotonic() < deadline, f"not within {PATIENCE_S:.0f} s: {what}; {states}"
            time.sleep(0.05)
        return found

    def trains(self, job_id: str, step: int = 30) -> None:
        """Past its first checkpoint and some steps beyond."""
        self.until(f"step {step}", lambda: self.row(job_id).step >= step)

    def over(self, job_id: str, state: JobState) -> None:
        """The job has ended and holds nothing."""
        self.until("its end", lambda: JobState(self.row(job_id).state).is_terminal)
        assert self.row(job_id).state == state.value, self.row(job_id).message
        self.until("its slots are free", lambda: not self.holds(job_id))

    def holds(self, job_id: str) -> bool:
        with self.database.read() as session:
            return placements.unreleased_of(session, job_id) is not None

    def raylet(self, node: str) -> int:
        cluster = living(self.folder)
        assert cluster is not None
        return cluster.raylets[node]

    def supervisors(self) -> list[int]:
        """Processes of supervisors of this cluster: with that title, children of raylets, which are its holder's."""
        cluster = living(self.folder)
        assert cluster is not None
        every = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        named = [pid for pid in every if title(pid).startswith("ray::Supervisor")]
        return [pid for pid in named if parent(parent(pid)) == cluster.pid]


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


def agent_of(pid: int) -> int:
    """The node agent that a rank descends from."""
    while pid > 1 and not title(pid).startswith("ray::NodeAgent"):
        pid = parent(pid)
    assert pid > 1, "the rank has no agent above it"
    return pid


@contextmanager
def control_plane(shape: str) -> Iterator[Site]:
    """`atoll serve --local SHAPE`. Its folder is short, because Ray makes sockets below it."""
    folder = Path(tempfile.mkdtemp(prefix="gp-", dir="/tmp"))
    url = f"sqlite:///{folder / 'atoll.db'}"
    upgrade(url)
    database = open_database(url)
    port = free_port("127.0.0.1")
    flags = ["--local", shape, "--state-directory", str(folder), "--port", str(port)]
    paths = [str(PROGRAMS), os.environ.get("PYTHONPATH", "")]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "atoll", "serve", *flags],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdout=log,
            stderr=log,
        )
    leaves, nodes, slots = map(int, shape.split("x"))
    try:
        with AtollClient(f"http://127.0.0.1:{port}", retry_budget_s=PATIENCE_S) as client:
            site = Site(folder, database, client)
            wanted = leaves * nodes * slots
            site.until("all slots are seen", lambda: client.cluster().free_slots == wanted)
            yield site
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        database.close()
        shutil.rmtree(folder, ignore_errors=True)


def held_and_waited(site: Site, job_id: str) -> tuple[float, float]:
    """GPU-seconds in placements, and those asked for between them, from SQL alone."""
    placed = text(
        "SELECT placed_at, released_at, json_array_length(slots) FROM placements WHERE job_id = :id ORDER BY placed_at"
    )
    job = text("SELECT created_at, finished_at, world_size FROM jobs WHERE id = :id")
    with site.database.read() as session:
        created, finished, asked = session.execute(job, {"id": job_id}).one()
        rows = session.execute(placed, {"id": job_id}).all()
    spans = [(moment(begin), moment(end), gpus) for begin, end, gpus in rows]
    held = sum((end - begin) * gpus for begin, end, gpus in spans)
    waited, since = 0.0, moment(created)
    for begin, end, _ in spans:
        waited += max(0.0, begin - since)
        since = end
    waited += max(0.0, moment(finished) - since)
    return held, waited * asked


def moment(stored: str) -> float:
    """SQLite keeps times as text, in UTC."""
    return datetime.fromisoformat(f"{stored}+00:00").timestamp()


@dataclass
class Steps:
    """What metrics say, in seconds of one GPU."""

    kept_s: float
    """Of steps after which no step with the same or a smaller number was finished."""
    again_s: float
    """Of the others."""
    gaps_s: float
    """Between the last step of each attempt and the begin of the first of the next one, without `unheard_s`."""
    unheard_s: float
    """Of steps that were saved and never told: those between a last step and a first one that lies beyond it."""


def steps_of(site: Site, job_id: str) -> Steps:
    rows = site.client.metrics(job_id, limit=1000).items
    assert len(rows) < 1000
    found = Steps(0.0, 0.0, 0.0, 0.0)
    usual_s = statistics.mean(row.step_time_s or 0.0 for row in rows[5:])
    for i, row in enumerate(rows):
        took = row.step_time_s or 0.0
        if any(later.step <= row.step for later in rows[i + 1 :]):
            found.again_s += took
        else:
            found.kept_s += took
        if i and rows[i - 1].attempt != row.attempt:
            unheard_s = max(0, row.step - rows[i - 1].step - 1) * usual_s
            found.unheard_s += unheard_s
            found.gaps_s += (row.at - rows[i - 1].at).total_seconds() - took - unheard_s
    return found


WAITS = ("exposed-communication", "bubble", "data-wait", "checkpoint-stall")
FAULTS = ("lost-work", "detection", "repair")


def check_sums(site: Site, job_id: str) -> tuple[Goodput, dict[str, float]]:
    """The classes are what was held and waited for; held time is what placements say."""
    found = site.client.goodput(job_id)
    classes = {name: seconds or 0.0 for name, seconds in found.gpu_seconds.items()}
    held, waited = held_and_waited(site, job_id)
    assert classes["queued"] == pytest.approx(waited, rel=TOLERANCE, abs=1e-3)
    assert sum(classes.values()) - classes["queued"] == pytest.approx(held, rel=TOLERANCE)
    assert found.held_gpu_seconds == pytest.approx(held, rel=TOLERANCE)
    assert sum(classes.values()) == pytest.approx(held + waited, rel=TOLERANCE)
    print(site.row(job_id).name, {name: round(seconds, 2) for name, seconds in classes.items() if seconds})
    return found, classes


def check_kept(site: Site, job_id: str, classes: dict[str, float], gpus: int = 2) -> None:
    """Useful compute and waits are the time of steps that count, and of one evaluation and the last save."""
    in_steps = classes["useful-compute"] + sum(classes[wait] for wait in WAITS)
    steps = steps_of(site, job_id)
    kept = (steps.kept_s + steps.unheard_s) * gpus
    assert kept * 0.95 - 1.0 <= in_steps <= kept * 1.1 + 4.0 * gpus


def check_quiet(site: Site, job_id: str) -> None:
    found, classes = check_sums(site, job_id)
    assert [classes[fault] for fault in FAULTS] == [0, 0, 0]
    assert found.repairs == []
    assert classes["start"] > 0
    assert found.unmeasured_gpu_seconds == {}
    check_kept(site, job_id, classes)


def check_repaired(site: Site, job_id: str, fault: str, rung: str) -> dict[str, float]:
    """What the fault cost is the time without a step and that of the steps that were trained again."""
    found, classes = check_sums(site, job_id)
    repair = found.repairs[-1]
    assert (repair.fault, repair.rung) == (fault, rung)
    assert repair.stepped_at is not None
    steps = steps_of(site, job_id)
    assert steps.again_s + steps.unheard_s > 0, "nothing was trained again: the fault came at a checkpoint"
    cost = sum(classes[name] for name in FAULTS)
    assert classes["lost-work"] >= 2 * steps.again_s * 0.98
    assert classes["repair"] > 0
    between = classes["queued"] - 2 * queued_at_first(site, job_id)
    assert cost + between == pytest.approx(2 * (steps.gaps_s + steps.again_s), rel=0.05, abs=1.0)
    check_kept(site, job_id, classes)
    return classes


def queued_at_first(site: Site, job_id: str) -> float:
    """Seconds until its first placement."""
    query = text(
        "SELECT created_at, (SELECT min(placed_at) FROM placements WHERE job_id = jobs.id) FROM jobs WHERE id = :id"
    )
    with site.database.read() as session:
        created, placed = session.execute(query, {"id": job_id}).one()
    return moment(placed) - moment(created)


@pytest.mark.timeout(300)
def test_a_rank_is_killed_and_a_job_is_cancelled_in_the_queue() -> None:
    with control_plane("1x1x2") as site:
        killed = site.submit("rank-killed")
        waits = site.submit("waits")
        site.trains(killed)
        os.kill(site.pids(killed)[1], signal.SIGKILL)
        running = site.client.goodput(killed)
        assert running.held_gpu_seconds > 0
        assert running.gpu_seconds["useful-compute"]
        site.client.cancel(waits)
        site.over(waits, JobState.CANCELLED)
        site.over(killed, JobState.SUCCEEDED)
        check_repaired(site, killed, "rank-died", "in-place")
        _, classes = check_sums(site, waits)
        assert {name for name, seconds in classes.items() if seconds} == {"queued"}
        cluster = site.client.cluster_goodput()
        both = [site.client.goodput(job_id).total_gpu_seconds for job_id in (killed, waits)]
        assert cluster.total_gpu_seconds == pytest.approx(sum(both), rel=1e-6)
        assert cluster.jobs == 2


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_seven_jobs_whose_processes_are_killed_stopped_and_wrong() -> None:
    with control_plane("2x2x2") as site:
        together(site)
        agent_and_supervisor(site)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_jobs_that_lose_their_nodes_and_their_place() -> None:
    with control_plane("2x2x2") as site:
        preemption(site)
        lost_nodes(site)


def together(site: Site) -> None:
    """Four jobs side by side: nothing happens, a rank is killed, a rank is stopped, the user's model raises."""
    quiet = site.submit("quiet")
    killed = site.submit("rank-killed")
    hung = site.submit("hung")
    model = {"import": "failing_model:build", "options": {"after": 33}}
    wrong = site.submit("user-error", model=model, recovery={"max_restarts_at_step": 2})
    site.trains(killed)
    os.kill(site.pids(killed)[0], signal.SIGKILL)
    site.trains(hung)
    os.kill(site.pids(hung)[1], signal.SIGSTOP)
    for job_id in (quiet, killed, hung):
        site.over(job_id, JobState.SUCCEEDED)
    site.over(wrong, JobState.FAILED)
    check_quiet(site, quiet)
    check_repaired(site, killed, "rank-died", "in-place")
    classes = check_repaired(site, hung, "hung", "in-place")
    assert 2 * 1.5 <= classes["detection"] <= 2 * 20  # it is taken for hung after two seconds
    found, classes = check_sums(site, wrong)
    assert found.repairs[-1].given_up
    assert classes["lost-work"] > 0  # the steps since its last checkpoint
    assert classes["useful-compute"] > 0  # those before it


def agent_and_supervisor(site: Site) -> None:
    """An agent is killed, a supervisor is killed, a job is cancelled while it trains."""
    orphan = site.submit("supervisor-killed")
    site.trains(orphan)
    (supervisor,) = site.supervisors()
    os.kill(supervisor, signal.SIGKILL)
    agent = site.submit("agent-killed")
    site.trains(agent)
    os.kill(agent_of(site.pids(agent)[0]), signal.SIGKILL)
    cancelled = site.submit("cancelled", training=long())
    site.trains(cancelled)
    site.client.cancel(cancelled)
    site.over(cancelled, JobState.CANCELLED)
    site.over(orphan, JobState.SUCCEEDED)
    site.over(agent, JobState.SUCCEEDED)
    check_repaired(site, orphan, "supervisor-lost", "re-placed")
    check_repaired(site, agent, "rank-died", "in-place")
    found, classes = check_sums(site, cancelled)
    saved = max(one.step for one in site.client.checkpoints(cancelled).items)
    assert (classes["lost-work"] > 0) == (saved < site.row(cancelled).step)
    assert classes["repair"] == classes["detection"] == 0
    assert found.repairs == []


def preemption(site: Site) -> None:
    """One of low priority makes room for one of high, a third waits and is cancelled."""
    whole = {"parallelism": {"dp": 8}}
    low = site.submit("low", **whole, training=long(400), queue={"priority": 0, "preemptible": True})
    site.trains(low, 25)
    high = site.submit("high", **whole, training=long(20), queue={"priority": 10})
    waits = site.submit("waits", **whole, queue={"priority": -10})
    site.until("it makes room", lambda: site.row(high).incarnation == 1)
    site.client.cancel(waits)
    site.over(waits, JobState.CANCELLED)
    site.over(high, JobState.SUCCEEDED)
    site.over(low, JobState.SUCCEEDED)
    held, _ = held_and_waited(site, high)
    found, classes = check_sums(site, low)
    assert classes["queued"] >= held  # as many GPUs as the other one held
    assert classes["repair"] == classes["detection"] == 0
    assert found.repairs == []
    check_kept(site, low, classes, gpus=8)
    check_sums(site, high)
    _, classes = check_sums(site, waits)
    assert {name for name, seconds in classes.items() if seconds} == {"queued"}


def lost_nodes(site: Site) -> None:
    """A node is lost and there is another; then one is lost and there is none: the job waits until it is cancelled."""
    moved = site.submit("node-lost")
    site.trains(moved)
    os.kill(site.raylet(site.nodes(moved)[0]), signal.SIGKILL)
    site.over(moved, JobState.SUCCEEDED)
    classes = check_repaired(site, moved, "node-lost", "re-placed")
    assert classes["detection"] > 0
    stuck = site.submit("no-room", parallelism={"dp": 6}, training=long() | {"global_batch": 12})
    site.trains(stuck, 25)
    pids = site.pids(stuck)
    os.kill(site.raylet(site.nodes(stuck)[0]), signal.SIGKILL)
    site.until("it waits", lambda: site.row(stuck).state == JobState.QUEUED.value and not site.holds(stuck))
    time.sleep(2.0)  # what it waits is to be seen
    site.client.cancel(stuck)
    site.over(stuck, JobState.CANCELLED)
    _, classes = check_sums(site, stuck)
    assert classes["queued"] >= 6 * 2.0
    assert classes["detection"] > 0
    assert not any(alive(pid) for pid in pids)
