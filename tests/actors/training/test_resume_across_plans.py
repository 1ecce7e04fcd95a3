"""B2: a checkpoint of any plan is resumed under any other, exactly, and the loss curve goes on.

Ten plans of one job with experts: each trains five steps and saves; each loads what every other one saved. Weights,
moments and step counts are equal to the bit, and the next three losses are those of a run that was never interrupted
(1e-9 relative, float64).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gang import FakeReporter, context, run_ranks
from matrix import job
from plans import Shard, assemble, shards

from actors.training.checkpoints import Checkpoints
from actors.training.engine import Engine
from actors.training.parallel.layout import local
from actors.training.parallel.mesh import set_default_timeout

PLANS = (
    "ep1",
    "ep2 replicate2",
    "ep2 shard2 zero3",
    "ep1 tp2 replicate2",
    "ep2 tp2 ring",
    "ep1 1f1b tp2",
    "ep2 zbv shard2 zero1",
    "ep1 interleaved-1f1b replicate2",
    "ep2 ulysses replicate2 shard2 zero2",
    "ep1 zero-bubble all-gather",
)
SAVED_AT, GOES_ON = 5, 3


def in_ranks(
    line: str, directory: Path, body: Callable[[Engine, Callable[[Path], Checkpoints]], Any]
) -> list[Any]:
    """Runs `body(engine, checkpoints of a directory)` on the ranks of a plan."""
    spec = job(line, precision="fp64", directory=str(directory))
    world = spec.parallelism.world_size

    def program(rank: int, store: Any) -> Any:
        made = context(rank, world, store, directory, reporter=FakeReporter())
        set_default_timeout(made.timeout)
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=world, timeout=made.timeout)
        engine = Engine(spec, torch.device("cpu"), rank=rank)

        def checkpoints(of: Path) -> Checkpoints:
            return Checkpoints(spec, context(rank, world, store, of, reporter=FakeReporter()), engine)

        answer = body(engine, checkpoints)
        dist.barrier()
        return answer

    return run_ranks(world, program)


def everything(engine: Engine) -> dict[str, Shard]:
    """Weights, moved buffers, moments and step counts."""
    found = shards(engine)
    for name, parameter in engine.named:
        layout = engine.layouts[name]
        for quantity, value in engine.optimizer.state(parameter).items():
            if value.dim():
                shard = Shard(layout.shape, layout.offsets(), local(value).clone())
            else:
                shard = Shard((1,), (0,), value.reshape(1).clone())
            found[f"{name}/{quantity}"] = shard
    return found


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, dict[str, torch.Tensor]]]:
    """Where a plan's checkpoint lies, and what it holds."""

    @cache
    def save(line: str) -> tuple[Path, dict[str, torch.Tensor]]:
        directory = tmp_path_factory.mktemp("plan")

        def body(engine: Engine, checkpoints: Callable[[Path], Checkpoints]) -> dict[str, Shard]:
            for step in range(SAVED_AT):
                engine.train_step(step, stop=False)
            writer = checkpoints(directory)
            writer.save(SAVED_AT, asynchronous=False)
            writer.finish()
            return everything(engine)

        return directory, assemble(in_ranks(line, directory, body))

    return save


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    def body(engine: Engine, checkpoints: Any) -> list[float]:
        return [engine.train_step(step, stop=False).loss for step in range(SAVED_AT + GOES_ON)]

    losses: list[float] = in_ranks("ep1", tmp_path_factory.mktemp("whole"), body)[0]
    return losses[SAVED_AT:]


def resume(
    line: str,
    sources: Sequence[str],
    saved: Callable[[str], tuple[Path, dict[str, torch.Tensor]]],
    uninterrupted: list[float],
    directory: Path,
) -> None:
    found = [saved(source) for source in sources]

    def body(engine: Engine, checkpoints: Callable[[Path], Checkpoints]) -> list[Any]:
        answers = []
        for where, _ in found:
            step = checkpoints(where).resume()
            held = everything(engine)
            losses = [engine.train_step(SAVED_AT + i, stop=False).loss for i in range(GOES_ON)]
            answers.append((step, held, losses))
        return answers

    ranks = in_ranks(line, directory, body)
    for i, source in enumerate(sources):
        assert [rank[i][0] for rank in ranks] == [SAVED_AT] * len(ranks)
        held, wanted = assemble([rank[i][1] for rank in ranks]), found[i][1]
        assert held.keys() == wanted.keys()
        different = [name for name, value in wanted.items() if not torch.equal(value, held[name])]
        assert not different, f"{source} -> {line}: {different[:5]}"
        assert ranks[0][i][2] == pytest.approx(uninterrupted, rel=1e-9, abs=0), f"{source} -> {line}"


def test_a_pair(saved: Any, uninterrupted: list[float], tmp_path: Path) -> None:
    resume(PLANS[2], [PLANS[5]], saved, uninterrupted, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("line", PLANS)
def test_every_pair(line: str, saved: Any, uninterrupted: list[float], tmp_path: Path) -> None:
    resume(line, [source for source in PLANS if source != line], saved, uninterrupted, tmp_path)
