"""The holder of a local cluster: one a directory, and nothing left of it, whether it ends or is killed.

The test itself keeps a file of the cluster open, as a driver does: it must live through the end of the cluster.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors import janitor, processes
from actors.local_cluster import MARKER, LocalCluster, Shape, _lock, living

pytestmark = pytest.mark.timeout(1500)


def test_shape() -> None:
    shape = Shape.parse("2x3x4")
    assert (shape.leaves, shape.nodes, shape.slots) == (2, 3, 4)
    assert [host for host, _ in shape.hosts()] == ["l0n0", "l0n1", "l0n2", "l1n0", "l1n1", "l1n2"]
    assert {leaf for _, leaf in shape.hosts()} == {"l0", "l1"}
    assert str(shape) == "2x3x4"


@pytest.mark.parametrize("text", ["", "2x2", "0x2x2", "2x2x2x2", "2x2x-1", "axbxc", "2x2x2 "])
def test_wrong_shape_says_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="expected LEAVESxNODESxSLOTS, for example 2x2x2"):
        Shape.parse(text)


def test_nothing_lives_in_an_empty_directory(tmp_path: Path) -> None:
    assert living(tmp_path) is None
    (tmp_path / "local-cluster.lock").touch()
    (tmp_path / "local-cluster.json").write_text("{}")
    assert living(tmp_path) is None, "a file without a holder is what a killed one left"


def test_one_who_only_looks_keeps_no_holder_away(tmp_path: Path) -> None:
    path = tmp_path / "local-cluster.lock"
    with path.open("wb") as looking, path.open("wb") as holding, path.open("wb") as late:
        fcntl.flock(looking, fcntl.LOCK_SH)
        release = threading.Timer(0.1, fcntl.flock, (looking, fcntl.LOCK_UN))
        release.start()
        assert _lock(holding.fileno())
        release.join()
        assert not _lock(late.fileno()), "a holder keeps the next one away"


def folder_of(cluster: LocalCluster) -> Path:
    """The temporary directory of a cluster, from the command line of a raylet."""
    line = Path(f"/proc/{cluster.raylets['l0n0']}/cmdline").read_text()
    match = re.search(r"/tmp/atoll-[^/]+", line)
    assert match is not None
    return Path(match[0])


def test_killed_holder_and_ended_holder_leave_nothing(
    tmp_path: Path,
    cluster_starter: Callable[..., Any],
    cluster_awaiter: Callable[..., LocalCluster],
    wait_for: Any,
) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        holder = cluster_starter("1x1x1", tmp_path)
        cluster = cluster_awaiter(holder, tmp_path)
        folder = folder_of(cluster)
        assert len(janitor.marked(f"{MARKER}={folder}", folder)) > 3
        bystander = (folder / "bystander").open("w")  # as a driver has its log open there
        if number is signal.SIGKILL:
            assert_second_start_is_refused(tmp_path, cluster)
        os.kill(holder.pid, number)
        code = holder.wait(120)
        assert code == (-9 if number is signal.SIGKILL else 0)
        assert living(tmp_path) is None
        wait_for(
            lambda folder=folder: not janitor.marked(f"{MARKER}={folder}", folder), "every process is gone"
        )
        wait_for(lambda folder=folder: not folder.exists(), "its temporary directory is gone")
        bystander.close()
    assert not (tmp_path / "local-cluster.json").exists()


def test_a_cluster_without_its_head_ends(
    tmp_path: Path,
    cluster_starter: Callable[..., Any],
    cluster_awaiter: Callable[..., LocalCluster],
    wait_for: Any,
) -> None:
    """So that `atoll serve`, which watches the holder, starts another: nothing answers in this one any more."""
    holder = cluster_starter("1x1x1", tmp_path)
    cluster = cluster_awaiter(holder, tmp_path)
    folder = folder_of(cluster)
    (gcs,) = (pid for pid in janitor.marked(f"{MARKER}={folder}", folder) if "gcs_server" in command_of(pid))
    os.kill(cluster.raylets["l0n0"], signal.SIGKILL)  # a node may go: the cluster goes on
    wait_for(lambda: not processes.alive(cluster.raylets["l0n0"]), "the node is off")
    assert living(tmp_path) == cluster
    os.kill(gcs, signal.SIGKILL)
    assert holder.wait(120) == 1
    assert f"GCS, process {gcs}" in (tmp_path / "holder.log").read_text()
    assert not janitor.marked(f"{MARKER}={folder}", folder)
    assert living(tmp_path) is None


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]


def assert_second_start_is_refused(directory: Path, cluster: LocalCluster) -> None:
    command = [
        sys.executable,
        "-m",
        "actors.local_cluster",
        "--shape",
        "1x1x1",
        "--state-directory",
        str(directory),
    ]
    second = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert second.returncode == 1
    assert f"already lives in {directory}: 1x1x1 at {cluster.address}, process {cluster.pid}" in second.stderr
    assert living(directory) == cluster
