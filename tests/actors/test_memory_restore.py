"""Ranks and nodes die, and the job goes on from memory: no file of a checkpoint is opened, the weights are the same.

The gang has four ranks on four nodes in two leaves. Each node's raylet is killed in turn, which ends all processes of
that node and so its memory; the job is placed again on the three left, as the controller does. What is read is
counted twice: by the ranks themselves, in the event, and by the kernel (inotify), of the checkpoints' files.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from actors import naming
from actors.local_cluster import LocalCluster
from actors.reaper import named_actors
from orchestrator.lifecycle.reports import EventKind, Outcome
from orchestrator.topology.fabric import Slot

pytestmark = [pytest.mark.timeout(2400), pytest.mark.slow]

STEPS = 290
STORED = 150
"""The one checkpoint in storage before the last step's."""
EVERY = 2
NODES = ("l0n0", "l0n1", "l1n0", "l1n1")
SPARES = ("l0n2", "l1n2", "l1n3", "l0n3")
SLOTS = tuple(Slot(node, 0) for node in NODES)

_IN_OPEN, _IN_ISDIR = 0x20, 0x40000000  # linux/inotify.h
_EVENT = struct.Struct("iIII")


class Opened:
    """How often files in a directory were opened, as the kernel saw it, by whichever process."""

    def __init__(self, directory: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc.inotify_add_watch(self._fd, bytes(directory), _IN_OPEN) < 0:
            raise OSError(ctypes.get_errno(), f"cannot watch {directory}")

    def count(self) -> int:
        """Since the call before."""
        opened = 0
        while True:
            try:
                content = os.read(self._fd, 1 << 16)
            except BlockingIOError:
                return opened
            offset = 0
            while offset < len(content):
                _, mask, _, length = _EVENT.unpack_from(content, offset)
                opened += not mask & _IN_ISDIR
                offset += _EVENT.size + length

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def opened(job: Path) -> Iterator[Opened]:
    """Watches the one checkpoint that a job has committed."""
    (stored,) = (job / "checkpoints").glob("step-*")
    watch = Opened(stored)
    try:
        yield watch
    finally:
        watch.close()


def spec(**memory: int) -> dict[str, Any]:
    """ZeRO 1 over dp 2, pp 2; fp32; one checkpoint in storage early, then snapshots alone until the end."""
    return {
        "name": "in-memory",
        "model": {"layers": 2, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn_hidden": 64},
        "parallelism": {"dp": 2, "pp": 2, "zero": 1, "microbatches": 2},
        "training": {"steps": STEPS, "global_batch": 4, "sequence_length": 32, "eval_sequences": 2},
        "checkpoint": {"every": STORED, "memory": memory},
        "recovery": {"max_restarts": 20, "max_restarts_at_step": 6, "step_timeout_s": 120.0},
        "placement": {"pp": {"tier": "any", "mode": "preferred"}},
    }


def weights(directory: Path) -> dict[str, bytes]:
    """The final checkpoint's tensors by name: parameters, moments and counters, byte for byte."""
    whole = directory / "whole.pt"
    dcp_to_torch_save(directory / "checkpoints" / f"step-{STEPS:08d}", whole)
    found: dict[str, bytes] = {}
    parts = [("", torch.load(whole, weights_only=False))]
    while parts:
        prefix, part = parts.pop()
        for key, value in part.items():
            if isinstance(value, dict):
                parts.append((f"{prefix}/{key}", value))
            elif isinstance(value, torch.Tensor):
                found[f"{prefix}/{key}"] = value.numpy().tobytes()
    assert len(found) > 30
    return found


def vaults(job_id: str) -> set[str]:
    """Nodes on which a vault of the job lives, by Ray's account."""
    found = [naming.vault_of(name) for name in named_actors()]
    return {vault[1] for vault in found if vault is not None and vault[0] == job_id}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, clusters: Any) -> Iterator[LocalCluster]:
    """Two leaves of four nodes each: four for the gang, four that take the places of those that are killed."""
    with clusters("2x4x1", tmp_path_factory.mktemp("memory")) as made:
        yield made


@pytest.fixture(scope="module")
def untouched() -> dict[str, bytes]:
    """The final state of the run that nothing touches, made by whichever test comes first."""
    return {}


def undisturbed(driver: Any, kept: dict[str, bytes]) -> dict[str, bytes]:
    if not kept:
        driver.start(SLOTS, spec())
        report = driver.end()
        assert report.outcome is Outcome.SUCCEEDED, report.message
        assert EventKind.SNAPSHOT_KEPT not in driver.kinds(), "off unless asked for"
        kept.update(weights(driver.directory))
    return kept


def resumed(driver: Any, attempt: int) -> Any:
    """The event of the attempt's resumption."""
    driver.until(
        lambda _: any(e.kind is EventKind.RESUMED and e.attempt == attempt for e in driver.events),
        f"attempt {attempt} has resumed",
    )
    (event,) = [e for e in driver.events if e.kind is EventKind.RESUMED and e.attempt == attempt]
    return event


def train_beyond(driver: Any, attempt: int, step: int) -> None:
    driver.until(
        lambda report: report.attempt == attempt and report.ranks and report.step >= step,
        f"attempt {attempt} has done step {step}",
    )


def test_a_rank_that_dies_goes_on_from_its_nodes_memory(
    cluster: LocalCluster, connect: Any, new_driver: Callable[..., Any], untouched: dict[str, bytes]
) -> None:
    launcher = connect(cluster)
    before = undisturbed(new_driver(launcher), untouched)
    driver = new_driver(launcher)
    driver.start(SLOTS, spec(every=EVERY))
    train_beyond(driver, 1, STORED + 20)
    with opened(driver.directory) as watch:
        os.kill(driver.reports[-1].ranks[2].pid, signal.SIGKILL)
        event = resumed(driver, 2)
        assert watch.count() == 0
    assert event.data["from"] == "memory"
    assert event.data["storage_bytes_read"] == 0
    assert event.data["step"] % EVERY == 0
    assert event.data["step"] >= STORED + 20 - 2 * EVERY, (
        "no more than the newest snapshot and the one on its way"
    )
    assert driver.end().outcome is Outcome.SUCCEEDED
    assert weights(driver.directory) == before
    assert vaults(driver.ref.job_id) == set(), "they end with the job"
    driver.assert_nothing_left()


def test_without_snapshots_the_same_death_reads_storage(
    cluster: LocalCluster, connect: Any, new_driver: Callable[..., Any], untouched: dict[str, bytes]
) -> None:
    launcher = connect(cluster)
    before = undisturbed(new_driver(launcher), untouched)
    driver = new_driver(launcher)
    driver.start(SLOTS, spec())
    train_beyond(driver, 1, STORED + 20)
    with opened(driver.directory) as watch:
        os.kill(driver.reports[-1].ranks[2].pid, signal.SIGKILL)
        event = resumed(driver, 2)
        assert watch.count() > 0
    stored = next((driver.directory / "checkpoints").glob(f"step-{STORED:08d}"))
    size = sum(path.stat().st_size for path in stored.iterdir())
    assert (event.data["from"], event.data["step"]) == ("storage", STORED)
    assert event.data["storage_bytes_read"] > size, "every file is verified, then its tensors are loaded"
    assert driver.end().outcome is Outcome.SUCCEEDED
    assert weights(driver.directory) == before


def test_every_node_in_turn_may_be_lost(
    cluster: LocalCluster, connect: Any, new_driver: Callable[..., Any], untouched: dict[str, bytes]
) -> None:
    """The controller's part is played here: the next incarnation is placed without the lost node."""
    launcher = connect(cluster)
    before = undisturbed(new_driver(launcher), untouched)
    driver = new_driver(launcher)
    job_id, slots = driver.ref.job_id, list(SLOTS)
    driver.start(slots, spec(every=EVERY))
    for turn, lost in enumerate(NODES):
        attempt, goal = turn + 1, STORED + 20 * (turn + 1)
        train_beyond(driver, attempt, goal)
        with opened(driver.directory) as watch:
            os.kill(cluster.raylets[lost], signal.SIGKILL)
            ended = driver.end()
            assert ended.outcome is Outcome.NODE_LOST, ended.message
            driver.assert_nothing_left()
            assert lost not in vaults(job_id), "its memory is gone with it"
            # The spare comes first: ranks change their nodes, and most of their snapshots are elsewhere.
            slots = [Slot(SPARES[turn], 0), *(slot for slot in slots if slot.node != lost)]
            driver = new_driver(launcher, job_id=job_id, incarnation=turn + 2)
            driver.start(
                slots,
                spec(every=EVERY),
                first_attempt=attempt + 1,
                restarts_used=turn + 1,
                deaths_at_step=ended.deaths_at_step,
            )
            event = resumed(driver, attempt + 1)
            assert watch.count() == 0, f"files of checkpoints were opened after the loss of {lost}"
        assert (event.data["from"], event.data["storage_bytes_read"]) == ("partner", 0)
        assert event.data["step"] > goal - 20, "a snapshot that this attempt took itself"
    report = driver.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert weights(driver.directory) == before
    assert vaults(job_id) == set()
    driver.assert_nothing_left()


def processes_named(title: bytes) -> set[int]:
    """Ids of this machine's processes of Ray that run an actor of the class."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "cmdline").read_bytes().startswith(b"ray::" + title):
                found.add(int(entry.name))
    return found


def test_snapshots_outlive_a_killed_supervisor_and_not_their_job(
    cluster: LocalCluster, connect: Any, new_driver: Callable[..., Any]
) -> None:
    launcher = connect(cluster)
    driver = new_driver(launcher)
    job_id, others = driver.ref.job_id, processes_named(b"Supervisor")
    slots = tuple(Slot(node, 0) for node in SPARES)  # whose raylets no test has killed
    driver.start(slots, spec(every=EVERY))
    train_beyond(driver, 1, STORED + 20)
    with opened(driver.directory) as watch:
        (supervisor,) = processes_named(b"Supervisor") - others
        os.kill(supervisor, signal.SIGKILL)
        driver.assert_nothing_left()
        assert job_id in launcher.remembered()
        second = new_driver(launcher, job_id=job_id, incarnation=2)
        second.start(slots, spec(every=EVERY), first_attempt=2, restarts_used=1)
        event = resumed(second, 2)
        assert watch.count() == 0
    assert (event.data["from"], event.data["storage_bytes_read"]) == ("memory", 0)
    # A vault is killed: its memory is gone with it, and the job trains on.
    os.kill(min(processes_named(b"VaultActor")), signal.SIGKILL)
    report = second.end()
    assert report.outcome is Outcome.SUCCEEDED, report.message
    assert any(e.kind is EventKind.SNAPSHOT_FAILED for e in second.events)
    assert job_id not in launcher.remembered()


def test_the_controller_gives_memory_back_that_nobody_else_does(
    cluster: LocalCluster, connect: Any, new_driver: Callable[..., Any]
) -> None:
    launcher = connect(cluster)
    driver = new_driver(launcher)
    job_id, others = driver.ref.job_id, processes_named(b"Supervisor")
    driver.start(tuple(Slot(node, 0) for node in SPARES), spec(every=EVERY))
    train_beyond(driver, 1, 10)
    (supervisor,) = processes_named(b"Supervisor") - others
    os.kill(supervisor, signal.SIGKILL)
    driver.assert_nothing_left()
    held = processes_named(b"VaultActor")
    assert len(held) == len(SPARES)
    launcher.forget(job_id)
    deadline = time.monotonic() + 60
    while processes_named(b"VaultActor") & held and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_named(b"VaultActor") & held
    assert launcher.remembered() == []
