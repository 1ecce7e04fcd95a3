"""What a snapshot in memory costs beside a checkpoint in storage: how long training stands still, and how long it takes
to have the state back.

One rank's state, its vault and its partner's in processes of their own on this machine; the copy goes over the loopback
interface. In each round every way is taken once, one after the other; nothing else runs while one is measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from report import Verdict, conclude
from torch.distributed.checkpoint.stateful import Stateful

from actors import processes
from actors.checkpoint import CheckpointStore
from actors.checkpoint.memory import MemoryStore, VaultOrders
from actors.checkpoint.peers import Peers
from actors.vault import memory
from actors.vault.books import Vault
from actors.vault.server import Address, VaultServer
from orchestrator.recovery.snapshots import Copy, restorable

BAR = 0.05
"""Time that training stands still for a snapshot, against that of a checkpoint saved without a thread."""
PLAN = "benchmark"
OWN, PARTNER = "own", "partner"
TENSORS = 64
SMALL = {"rounds": 2, "megabytes": 8}


class Weights(Stateful):
    """So many equal tensors of random numbers."""

    def __init__(self, megabytes: int) -> None:
        size = megabytes * 1_000_000 // TENSORS // 4
        self.tensors = {f"tensor{i}": torch.randn(size) for i in range(TENSORS)}

    def state_dict(self) -> dict[str, Any]:
        return dict(self.tensors)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, tensor in self.tensors.items():
            tensor.copy_(state_dict[name])

    def wipe(self) -> None:
        for tensor in self.tensors.values():
            tensor.zero_()

    def sum(self) -> float:
        return float(sum(tensor.double().sum() for tensor in self.tensors.values()))


def serve(node: str, parent: int, pipe: Connection) -> None:
    """A vault's process."""
    processes.die_with_parent(parent)
    _, whole = memory.of_this_node()
    vault = Vault(node, whole, memory.of_this_node)
    pipe.send(VaultServer(vault, node, "127.0.0.1").address)
    while True:
        pipe.send(vault.fence(pipe.recv()))


@contextmanager
def vaults() -> Iterator[dict[str, tuple[Address, Connection]]]:
    """By node the address of a vault, and the pipe over which it tells what it holds. Forks: before any thread."""
    fork = multiprocessing.get_context("fork")
    found, running = {}, []
    for node in (OWN, PARTNER):
        mine, its = fork.Pipe()
        running.append(fork.Process(target=serve, args=(node, os.getpid(), its), daemon=True))
        running[-1].start()
        found[node] = (mine.recv(), mine)
    try:
        yield found
    finally:
        for process in running:
            process.kill()
            process.join()


def store_of(
    held: dict[str, tuple[Address, Connection]], attempt: int, *, lost: str | None = None
) -> MemoryStore:
    """The rank's store in an attempt; `lost` is the node whose vault is not there."""
    copies: list[Copy] = []
    for node, (_, pipe) in held.items():
        pipe.send((1, attempt))
        copies += [copy for copy in pipe.recv() if node != lost]
    told = {
        "addresses": {node: asdict(address) for node, (address, _) in held.items()},
        "homes": [OWN],
        "partners": {OWN: [PARTNER]},
        "plan": PLAN,
        "restorable": [
            {"generation": one.generation.key, "sources": one.sources}
            for one in restorable(copies, [OWN], PLAN).restorable
        ],
    }
    peers = Peers(rank=0, world_size=1, group=None)
    return MemoryStore(VaultOrders.of(told, 0), fence=(1, attempt), peers=peers)


def timed(act: Callable[..., Any], *arguments: Any, **named: Any) -> float:
    began = time.monotonic()
    act(*arguments, **named)
    return time.monotonic() - began


class Round:
    """Every way, once after the other, on one state."""

    def __init__(self, held: dict[str, tuple[Address, Connection]], directory: Path, megabytes: int) -> None:
        self._held = held
        self._weights = Weights(megabytes)
        self._state: dict[str, Stateful] = {"model": self._weights}
        self._attempt = 1
        self._snapshots = store_of(held, 1)
        self._storage = CheckpointStore(
            directory, keep=1, attempt="1-1", process_group=None, rank=0, world_size=1
        )

    def run(self, step: int) -> dict[str, float]:
        """Seconds by what was done."""
        state, storage = self._state, self._storage
        sample = {"snapshot_stall_s": timed(self._snapshots.save, step, state, {})}
        sample["snapshot_on_its_way_s"] = timed(self._snapshots.wait)
        (result,) = self._snapshots.drain()
        if result.failed is not None:
            raise RuntimeError(result.failed)
        sample["async_stall_s"] = timed(storage.save, 2 * step, state, {})
        storage.wait()
        sample["sync_stall_s"] = timed(storage.save, 2 * step + 1, state, {}, asynchronous=False)
        for name, lost in (("own", None), ("partner", OWN)):
            self._begin_attempt(lost)
            sample[f"restore_{name}_s"] = self._restored(self._snapshots.load, state, newer_than=step)
            self._snapshots.wait()
        sample["restore_storage_s"] = self._restored(storage.load_latest, state)
        return sample

    def _restored(self, load: Callable[..., Any], *arguments: Any, **named: Any) -> float:
        """Seconds of `load`, which brings back what is wiped out before."""
        saved = self._weights.sum()
        self._weights.wipe()
        took_s = timed(load, *arguments, **named)
        if self._weights.sum() != saved:
            raise RuntimeError("what was restored is not what was saved")
        return took_s

    def _begin_attempt(self, lost: str | None) -> None:
        self._snapshots.close()
        self._attempt += 1
        self._snapshots = store_of(self._held, self._attempt, lost=lost)

    def close(self) -> None:
        self._snapshots.close()


def measure(*, rounds: int, megabytes: int) -> list[dict[str, float]]:
    """A sample each round. The first round, which warms everything up, is left out."""
    with vaults() as held, tempfile.TemporaryDirectory(dir=Path.cwd()) as directory:
        one = Round(held, Path(directory), megabytes)
        samples = [one.run(number + 1) for number in range(rounds + 1)]
        one.close()
    return samples[1:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=512, help="of one rank's state")
    parser.add_argument(
        "--small", action="store_true", help="two small rounds and no verdict, to try the script"
    )
    options = parser.parse_args()
    setting = {"rounds": options.rounds, "megabytes": options.megabytes}
    if min(setting.values()) < 1:
        parser.error("--rounds and --megabytes must be 1 or more")
    if options.small:
        setting = SMALL
    torch.set_num_threads(1)  # it forks
    samples = measure(**setting)
    for name in samples[0]:
        print(f"{name} {statistics.median(sample[name] for sample in samples):.4f}")
    if options.small:
        return 0
    ratio = statistics.median(sample["snapshot_stall_s"] / sample["sync_stall_s"] for sample in samples)
    return conclude(
        Verdict("snapshots", "stall ratio", ratio, BAR, at_least=False), setting=setting, samples=samples
    )


if __name__ == "__main__":
    sys.exit(main())
