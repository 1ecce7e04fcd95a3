"""Raylets that die while a local cluster starts: noticed at once, begun anew, and named when no try succeeds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actors import processes
from actors.local_cluster import START_TRIES, LocalCluster, living

pytestmark = pytest.mark.timeout(600)

TIMED_OUT = "Timed out waiting for file /tmp/s/metrics_agent_port_1f"
BOILERPLATE = "An unexpected system state has occurred. You have likely discovered a bug."
FAILED_CHECK = f"""\
[2026-01-02 03:04:05,006 I 11 11] (raylet) main.cc:321: Setting cluster ID to: 4b
[2026-01-02 03:04:06,006 E 11 25] (raylet) agent_manager.cc:87: Agent process with name dashboard_agent exited.
[2026-01-02 03:04:21,006 C 11 11] (raylet) node_manager.cc:3576:  {BOILERPLATE} Check failed: has_value() {TIMED_OUT}
*** StackTrace Information ***
/lib/x86_64-linux-gnu/libc.so.6(+0x2724a) [0x7f729564524a]
"""


def test_telling_line_is_the_last_of_the_worst_severity(tmp_path: Path) -> None:
    from actors.local_nodes import telling_line

    log = tmp_path / "raylet.err"
    assert telling_line(log) == "", "a raylet that never wrote one"
    log.write_text(FAILED_CHECK)
    assert telling_line(log) == f"Check failed: has_value() {TIMED_OUT}"
    log.write_text("".join(line for line in FAILED_CHECK.splitlines(True) if " C " not in line))
    assert telling_line(log) == "agent_manager.cc:87: Agent process with name dashboard_agent exited."


def test_only_the_agents_of_a_raylet_are_replaced() -> None:
    from actors.local_nodes import STAND_IN, without_agents

    command = [
        "raylet",
        "--node_manager_port=0",
        "--metrics-agent-port=0",
        "--dashboard_agent_command=python agent.py --grpc-port=0",
        "--runtime_env_agent_command=python main.py",
        "--head",
    ]
    lean = without_agents(command, runtime_environments=False)
    assert lean[:3] == ["raylet", "--node_manager_port=0", "--head"]
    assert {f"--dashboard_agent_command={STAND_IN}", f"--runtime_env_agent_command={STAND_IN}"} < set(lean)
    with_environments = without_agents(command, runtime_environments=True)
    assert "--runtime_env_agent_command=python main.py" in with_environments
    assert not any(part.startswith("--runtime_env_agent_port") for part in with_environments)


def raylets_of(holder: subprocess.Popen[bytes]) -> Iterator[int]:
    """Process ids of the living raylets that the holder started."""
    for entry in Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text()
            name, parent = (entry / "comm").read_text().strip(), int(stat.rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if name == "raylet" and parent == holder.pid and processes.alive(int(entry.name)):
            yield int(entry.name)


@contextmanager
def raylets_killed(holder: subprocess.Popen[bytes], most: int) -> Iterator[list[int]]:
    """Kills raylets of the holder as soon as they are seen, `most` of them; the list of those killed."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while len(killed) < most and not over.wait(0.002):
            for pid in raylets_of(holder):
                if pid not in killed and len(killed) < most:
                    killed.append(pid)
                    os.kill(pid, signal.SIGKILL)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


def test_a_start_whose_raylet_dies_is_begun_anew(
    tmp_path: Path, cluster_starter: Callable[..., Any], cluster_awaiter: Callable[..., LocalCluster]
) -> None:
    holder = cluster_starter("1x1x1", tmp_path)
    with raylets_killed(holder, most=1) as killed:
        cluster = cluster_awaiter(holder, tmp_path)
    assert len(killed) == 1
    assert processes.alive(cluster.raylets["l0n0"])
    log = (tmp_path / "holder.log").read_text()
    assert re.search(r"start 1 of 3 failed: the raylet of the head was ended by SIGKILL \d+ s after", log)
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(120) == 0


def test_when_no_try_succeeds_the_last_death_is_named(
    tmp_path: Path, cluster_starter: Callable[..., Any]
) -> None:
    holder = cluster_starter("1x1x1", tmp_path)
    with raylets_killed(holder, most=START_TRIES) as killed:
        assert holder.wait(300) == 1
    assert len(killed) == START_TRIES
    assert living(tmp_path) is None
    last = (tmp_path / "holder.log").read_text().splitlines()[-1]
    assert last.startswith(
        f"local cluster 1x1x1 did not start in {START_TRIES} tries; at last the raylet of "
    )
    assert "was ended by SIGKILL" in last
    assert re.search(r"load \d+\.\d on \d+ cores$", last)
