"""Real gloo gangs of forked processes, and small training states for them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # FSDP2 and the optimizer import it late: once here instead of in every forked rank
import torch._inductor.config
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from actors.checkpoint import CheckpointStore

DEADLINE_S = 120.0
"""Longest time a gang may take; generous, since machines that run tests are busy."""
_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


@dataclass
class Rank:
    """What a function of a gang is given in its process."""

    rank: int
    world_size: int
    directory: Path
    checkpoint_group: Any
    pipe: Connection

    def store(self, *, attempt: str = "1-1", keep: int = 3, **options: Any) -> CheckpointStore:
        return CheckpointStore(
            self.directory,
            keep=keep,
            attempt=attempt,
            process_group=self.checkpoint_group,
            rank=self.rank,
            world_size=self.world_size,
            **options,
        )

    def tell(self, value: Any) -> None:
        """Says something to the test while the function goes on."""
        self.pipe.send(("said", value))


@dataclass
class Gang:
    """Forked ranks: real processes over gloo, one file store as rendezvous."""

    processes: list[Any] = field(default_factory=list)
    pipes: list[Connection] = field(default_factory=list)

    def hear(self, rank: int) -> Any:
        """The next thing `rank` says; its return value counts. Raises when it failed or died."""
        if not self.pipes[rank].poll(DEADLINE_S):
            raise TimeoutError(f"rank {rank} said nothing for {DEADLINE_S} s")
        kind, value = self.pipes[rank].recv()
        if kind == "failed":
            raise AssertionError(f"rank {rank} failed:\n{value}")
        return value

    def results(self) -> list[Any]:
        """What each rank returned."""
        try:
            return [self.hear(rank) for rank in range(len(self.processes))]
        finally:
            self.end()

    def kill(self, rank: int) -> None:
        os.kill(self.processes[rank].pid, signal.SIGKILL)

    def end(self) -> None:
        """Ends every rank by SIGKILL, as the supervisor does."""
        for process in self.processes:
            process.join(0.2)
            if process.is_alive():
                process.kill()
            process.join(DEADLINE_S)


def _main(rank: int, world_size: int, rendezvous: Path, directory: Path, pipe: Connection, call: Any) -> None:
    torch.set_num_threads(1)
    function, arguments = call
    try:
        group = None
        if world_size > 1:
            timeout = timedelta(seconds=60)
            store = dist.FileStore(str(rendezvous), world_size)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
            group = dist.new_group(backend="gloo", timeout=timeout)
        answer = function(Rank(rank, world_size, directory, group, pipe), *arguments)
        pipe.send(("returned", answer))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
    finally:
        os._exit(0)  # neither pytest's exit handlers nor a wait for a writer whose peers are gone


@pytest.fixture(scope="session")
def start_gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Gang]]:
    """start_gang(world_size, directory, function, *arguments) forks a gang that runs the function."""
    context = multiprocessing.get_context("fork")
    gangs: list[Gang] = []

    def start(world_size: int, directory: Path, function: Callable[..., Any], *arguments: Any) -> Gang:
        gang = Gang()
        gangs.append(gang)
        rendezvous = tmp_path_factory.mktemp("rendezvous") / "store"
        for rank in range(world_size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_main,
                args=(rank, world_size, rendezvous, directory, theirs, (function, arguments)),
                daemon=True,
            )
            process.start()
            theirs.close()
            gang.processes.append(process)
            gang.pipes.append(ours)
        return gang

    yield start
    for gang in gangs:
        gang.end()


@pytest.fixture(scope="session")
def run_gang(start_gang: Callable[..., Gang]) -> Callable[..., list[Any]]:
    """run_gang(world_size, directory, function, *arguments): what each rank returned."""

    def run(*arguments: Any) -> list[Any]:
        return start_gang(*arguments).results()

    return run


class Trainee:
    """A small model with dropout under AdamW; sharded with FSDP2 (DTensors) when there are several ranks."""

    def __init__(self, world_size: int, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(7, 13), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(13, 5)
        ).double()
        if world_size > 1:
            fully_shard(self.model, mesh=init_device_mesh("cpu", (world_size,)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.steps = 0

    def train(self, steps: int) -> None:
        """Dropout draws from the rank's own generator, so the result depends on RNG too."""
        for _ in range(steps):
            inputs = torch.randn(4, 7, generator=torch.Generator().manual_seed(self.steps)).double()
            self.model(inputs).square().sum().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.steps += 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": get_model_state_dict(self.model),
            "optimizer": get_optimizer_state_dict(self.model, self.optimizer, options=_FLAT),
            "steps": self.steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_model_state_dict(self.model, state["model"])
        set_optimizer_state_dict(self.model, self.optimizer, state["optimizer"], options=_FLAT)
        self.steps = state["steps"]

    def values(self) -> dict[str, Any]:
        """Every value of the whole state, gathered, as plain lists: comparable bit for bit between gangs."""
        state = self.state_dict()
        found: dict[str, Any] = {"steps": state["steps"]}
        for part in ("model", "optimizer"):
            for name, value in state[part].items():
                if isinstance(value, torch.Tensor):
                    full = value.full_tensor() if hasattr(value, "full_tensor") else value
                    found[f"{part}.{name}"] = full.tolist()
                else:
                    found[f"{part}.{name}"] = value
        return found


@pytest.fixture(scope="session")
def trainee() -> type[Trainee]:
    return Trainee
