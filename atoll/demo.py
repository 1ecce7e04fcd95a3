"""`atoll demo`: a whole job on this machine, watched over the REST API, with one rank killed half-way.

Everything it starts carries a marker in its environment, so that at the end it can prove that nothing is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from actors.local_cluster import MARKER as CLUSTER_MARKER
from actors.local_cluster import RUNTIME_ENVIRONMENTS
from actors.processes import alive, die_with_parent, signal_quietly
from atoll import children, local_ray
from atoll.answers import JobDetail, Rank
from atoll.cli.job_file import read_job
from atoll.client import AtollClient
from atoll.demo_view import DemoView
from atoll.errors import AtollError, ServerUnreachableError
from atoll.preflight import free_port

SHAPE = "2x2x2"
MARKER = "ATOLL_DEMO"
POLL_S = 0.25
READY_PATIENCE_S = 180.0
JOB_PATIENCE_S = 600.0
END_PATIENCE_S = children.END_PATIENCE_S + local_ray.END_PATIENCE_S + 10.0
"""`atoll serve` ends its children, then the cluster."""


class DemoFailedError(AtollError):
    """The demo did not show what it is there to show."""


@dataclass
class Progress:
    """How far the demo has read the job's history, and what it has seen in it."""

    event_cursor: int = 0
    metric_cursor: int = 0
    kinds: set[str] = field(default_factory=set)
    killed: Rank | None = None


def job_path() -> Path:
    """`examples/demo.yaml` of the checkout, or the copy inside an installed package."""
    here = Path(__file__).resolve().parent
    return next(
        path for path in (here.parent / "examples" / "demo.yaml", here / "demo.yaml") if path.is_file()
    )


def run(view: DemoView) -> None:
    """Runs the demo. DemoFailedError, with the reason, when anything is not as it must be."""
    state = Path(tempfile.mkdtemp(prefix="atoll-demo-"))
    keep = True
    try:
        spec = read_job(str(job_path()))
        with control_plane(state, view) as client:
            view.say(f"Web UI: {client.url}")
            submitted = client.submit(spec)
            view.say(f"Submitted {submitted.name} over REST: job {submitted.id}")
            job, progress = watch(client, submitted.id, view)
            view.show_end(job)
            check(job, progress)
        keep = False
    finally:
        if keep:
            view.say(f"Logs of the control plane are in {state}")
        else:
            shutil.rmtree(state, ignore_errors=True)


@contextmanager
def control_plane(state: Path, view: DemoView, shape: str = SHAPE) -> Iterator[AtollClient]:
    """`atoll serve` with a local cluster of `shape`, ready; ended, and proved to be ended, on leaving."""
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    log = state / "serve.log"
    view.say(
        f"Starting the control plane and a local Ray cluster of {shape} (leaf switches x nodes x CPU slots)"
    )
    parent = os.getpid()
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [sys.executable, "-m", "atoll", "serve", *serve_flags(url.rpartition(":")[2], state, shape)],
            env=server_environment(state),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),
        )
    try:
        with AtollClient(url, retry_budget_s=20.0) as client:
            wait_until_ready(client, server, log)
            yield client
    finally:
        view.say("Stopping everything")
        stop(server, state)
        view.say("Nothing that was started is left")


def serve_flags(port: str, state: Path, shape: str) -> list[str]:
    return ["--local", shape, "--host", "127.0.0.1", "--port", port, "--state-directory", str(state)]


def server_environment(state: Path) -> dict[str, str]:
    """This process's environment without settings of another control plane."""
    foreign = ("ATOLL_", "RAY_ADDRESS", "DATABASE_URL")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == RUNTIME_ENVIRONMENTS or not name.startswith(foreign)
    }
    return {**kept, MARKER: str(state), "OMP_NUM_THREADS": kept.get("OMP_NUM_THREADS", "1")}


def wait_until_ready(client: AtollClient, server: subprocess.Popen[bytes], log: Path) -> None:
    """Until every slot of the local cluster is known to the control plane."""
    deadline = time.monotonic() + READY_PATIENCE_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise DemoFailedError(
                f"the control plane ended by itself; its last words: {local_ray.tail(log, 5)}"
            )
        try:
            if client.cluster().free_slots >= 8:
                return
        except ServerUnreachableError:
            pass
        time.sleep(POLL_S)
    raise DemoFailedError(
        f"the local cluster was not ready within {READY_PATIENCE_S:.0f} s; last words: {local_ray.tail(log, 5)}"
    )


def watch(client: AtollClient, job_id: str, view: DemoView) -> tuple[JobDetail, Progress]:
    """Shows the job until it has ended; kills a rank once half of the steps are done."""
    progress = Progress()
    deadline = time.monotonic() + JOB_PATIENCE_S
    while time.monotonic() < deadline:
        job = client.job(job_id)  # before the history: what an ended job did is then all there
        for event in client.all_events(job_id, after=progress.event_cursor):
            progress.event_cursor = event.id
            progress.kinds.add(event.kind)
            view.show_event(event)
        for metric in client.all_metrics(job_id, after=progress.metric_cursor):
            progress.metric_cursor = metric.id
            view.show_step(metric, job.total_steps)
        view.show_job(job)
        if job.is_terminal:
            return job, progress
        if progress.killed is None and job.state == "running" and job.step * 2 >= job.total_steps:
            progress.killed = kill_one(job, view)
        time.sleep(POLL_S)
    raise DemoFailedError(f"the job is still {job.state} at step {job.step} after {JOB_PATIENCE_S:.0f} s")


def kill_one(job: JobDetail, view: DemoView) -> Rank | None:
    """SIGKILL to one rank process that is not rank 0; None when no rank has told its process id yet."""
    ranks = job.placement.ranks if job.placement else []
    victims = [rank for rank in ranks if rank.pid is not None and rank.rank != 0]
    if not victims:
        return None
    victim = victims[len(victims) // 2]
    assert victim.pid is not None
    if not belongs_to_the_demo(victim.pid):
        raise DemoFailedError(f"process {victim.pid}, told as rank {victim.rank}, is none of the demo's")
    view.show_kill(victim, job.step)
    os.kill(victim.pid, signal.SIGKILL)
    return victim


def belongs_to_the_demo(pid: int) -> bool:
    """Only a process of the demo's own cluster is ever killed."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{CLUSTER_MARKER}=".encode() in environment


def check(job: JobDetail, progress: Progress) -> None:
    """The job succeeded, a rank died and was replaced, and the model has learned."""
    if job.state != "succeeded":
        raise DemoFailedError(f"the job {job.state}: {job.message}")
    if progress.killed is None:
        raise DemoFailedError("the job ended before a rank could be killed")
    missing = {"rank-died", "repaired"} - progress.kinds
    if missing:
        raise DemoFailedError(f"the job's history lacks {' and '.join(sorted(missing))}")
    if job.evaluation is None or job.evaluation.loss is None:
        raise DemoFailedError("the job reported no loss on the held-back part")
    if job.evaluation.loss >= job.evaluation.unigram_loss:
        raise DemoFailedError("the model has learned nothing beyond a unigram model")


def stop(server: subprocess.Popen[bytes], state: Path) -> None:
    """Ends the control plane and its cluster; DemoFailedError when a process is left after that."""
    if server.poll() is None:
        server.terminate()
    try:
        server.wait(END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    marker = f"{MARKER}={state}"
    deadline = time.monotonic() + END_PATIENCE_S / 2
    while left := marked(marker):
        if time.monotonic() > deadline:
            for pid in left:
                signal_quietly(pid, signal.SIGKILL)
            raise DemoFailedError(f"these processes were left and had to be killed: {sorted(left)}")
        time.sleep(POLL_S)


def marked(marker: str) -> list[int]:
    """Living processes that carry `marker` in their environment, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue  # gone, or another user's
        if marker.encode() in environment.split(b"\0") and alive(int(entry.name)):
            found.append(int(entry.name))
    return found
