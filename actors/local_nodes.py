"""The nodes of a local cluster: Ray's own, without the processes Atoll has no use for, and watched while they start.

Ray 2.60 starts two Python agents beside every raylet and, at the head, a dashboard, an autoscaler and a log monitor. On
two busy cores they cost most of a start, and break it: a raylet that is not told the ports of its agents within 15 s
aborts (`WaitForPersistedPort` of src/ray/raylet/node_manager.cc, a constant that no setting reaches; ray issue 65983).
Here the agents' places are taken by a process that does nothing, and their ports are said to be out of use, as an
installation of Ray without its `default` extra says it.

Imports Ray: comes after `ray_environment.prepare`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import NodeID
from ray._private import ray_constants, services
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray.exceptions import RpcError

STAND_IN = "/bin/cat"
"""A raylet ends with its agents, so something must live there. Its input is a pipe from the raylet: it ends with it."""
LOOK_S = 0.05
RPC_S = 1.0
"""How long one question to the GCS may take; a raylet that has died is noticed between two."""
CHECK_FAILED = "Check failed"
"""Ray puts a request for a bug report before it."""
WORST_SEVERITIES = ("C", "F", "E")
"""Of a line of Ray's logs: check failed, fatal, error."""


class NodeStartError(RuntimeError):
    """A node did not start; the text says which raylet failed, how, and what it said about it."""


def telling_line(log: Path) -> str:
    """The line of a raylet's log that says why it ended: the last of the worst severity, without time and process."""
    try:
        lines = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    for severity in WORST_SEVERITIES:
        marked = re.compile(rf"\[[^\]]* {severity} \d+ \d+\] (?:\(\w+\) )?(.*)")
        found = [match[1] for line in lines if (match := marked.match(line))]
        if found:
            return found[-1][max(found[-1].find(CHECK_FAILED), 0) :].strip()
    return ""


def ending_of(code: int) -> str:
    """How a process ended, by the return code of its Popen."""
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def without_agents(command: Sequence[str], *, runtime_environments: bool) -> list[str]:
    """A raylet's command line with stand-ins for its agents; `runtime_environments` leaves it the agent for those."""
    replaced = {
        "dashboard_agent_command": STAND_IN,
        "dashboard_agent_listen_port": "-1",
        "metrics_agent_port": "-1",
        "metrics_export_port": "-1",
    }
    if not runtime_environments:
        replaced |= {"runtime_env_agent_command": STAND_IN, "runtime_env_agent_port": "-1"}
    kept = [
        part
        for part in command
        if part.partition("=")[0].removeprefix("--").replace("-", "_") not in replaced
    ]
    return kept + [f"--{name}={value}" for name, value in replaced.items()]


@dataclass
class Raylet:
    """A raylet that was started, and the log of what it says."""

    host: str
    process: subprocess.Popen[bytes]
    log: Path
    began_at: float = field(default_factory=time.monotonic)

    def check(self) -> None:
        """NodeStartError when it has ended."""
        code = self.process.poll()
        if code is None:
            return
        said = telling_line(self.log)
        raise NodeStartError(
            f"the raylet of {self.host} {ending_of(code)} {time.monotonic() - self.began_at:.0f} s after its start"
            + (f", saying: {said}" if said else "")
        )


class LocalNode(Node):
    """A node that has started when the GCS knows it; any raylet that dies before ends the start.

    `shutdown_at_exit` would take SIGTERM for a drain of 30 s; the holder ends everything itself.
    """

    def __init__(self, nodes: LocalNodes, host: str, *, head: bool, **parameters: Any) -> None:
        self._nodes = nodes
        self._host = host
        super().__init__(RayParams(**parameters), head=head, shutdown_at_exit=False, spawn_reaper=True)

    def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        """No dashboard, not even the part of it that Ray starts when told to have none."""
        self._webui_url = ""

    def start_raylet(self, *arguments: Any, **options: Any) -> None:
        with self._nodes.changed_commands():
            super().start_raylet(*arguments, **options)
        process = self.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process
        log = Path(
            next(part for part in process.args if part.startswith("--stderr_filepath=")).partition("=")[2]
        )
        self._nodes.raylets.append(Raylet(self._host, process, log))
        self._nodes.wait_until(self._is_known, f"the raylet of {self._host} to register")

    def _is_known(self) -> bool:
        try:
            client = self.get_gcs_client()  # type: ignore[no-untyped-call]
            alive = client.check_alive([NodeID.from_hex(str(self._node_id))], timeout=RPC_S)
        except RpcError:
            return False
        return bool(alive[0])


@dataclass
class LocalNodes:
    """The nodes of one try of a start, the head first, started one after the other from the main thread.

    The kernel kills a raylet when the thread that started it ends, and raylets started at the same moment were seen to
    keep one another from registering (it saved 3 of 16 s).
    """

    deadline: float
    """By time.monotonic."""
    runtime_environments: bool = False
    shared: dict[str, Any] = field(default_factory=dict)
    """Parameters of every node."""
    raylets: list[Raylet] = field(default_factory=list)
    address: str = ""
    gcs: int = 0
    """Process id of the head's GCS, 0 before it is started."""

    def start_head(self, **parameters: Any) -> LocalNode:
        """The head's GCS and raylet."""
        head = LocalNode(
            self,
            "the head",
            head=True,
            num_cpus=0,
            include_dashboard=False,
            no_monitor=True,
            **self._common(),
            **parameters,
        )
        self.address = head.gcs_address
        self.gcs = head.all_processes[ray_constants.PROCESS_TYPE_GCS_SERVER][0].process.pid
        return head

    def start(self, host: str, **parameters: Any) -> int:
        """Process id of the raylet of a new node."""
        LocalNode(
            self,
            host,
            head=False,
            gcs_address=self.address,
            node_manager_port=0,
            **self._common(),
            **parameters,
        )
        return self.raylets[-1].process.pid

    def check(self) -> None:
        for raylet in self.raylets:
            raylet.check()

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """NodeStartError when a raylet dies meanwhile or the deadline passes."""
        while not condition():
            self.check()
            if time.monotonic() > self.deadline:
                raise NodeStartError(f"waited in vain for {what}")
            time.sleep(LOOK_S)
        self.check()

    @contextmanager
    def changed_commands(self) -> Iterator[None]:
        """Ray has no setting that leaves agents out, so the call that starts a raylet is changed on its way."""
        start = services.start_ray_process

        def start_changed(command: list[str], *arguments: Any, **options: Any) -> Any:
            changed = without_agents(command, runtime_environments=self.runtime_environments)
            return start(changed, *arguments, **options)

        services.start_ray_process = start_changed
        try:
            yield
        finally:
            services.start_ray_process = start

    def _common(self) -> dict[str, Any]:
        nothing = {"num_gpus": 0, "min_worker_port": 0, "max_worker_port": 0, "include_log_monitor": False}
        return {**nothing, **self.shared}


def how_busy() -> str:
    """The load of this machine against its cores, and what that means for a start."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    verdict = "this machine is too busy for it: " if load > cores else ""
    return f"{verdict}load {load:.1f} on {cores} cores"
