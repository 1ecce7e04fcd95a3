"""Jobs for tests: the demo's job, under any plan and shortened."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import yaml
from gang import FakeReporter, context, run_ranks

from actors.training import loop
from actors.training.engine import Engine
from actors.training.parallel.layout import local
from actors.training.parallel.mesh import set_default_timeout
from orchestrator.spec import JobSpec

DEMO = Path(__file__).parents[3] / "examples" / "demo.yaml"


def demo_job(
    *, parallelism: Mapping[str, Any] | None = None, data: Mapping[str, Any] | None = None, **training: Any
) -> JobSpec:
    """The demo's job with some fields replaced; one rank and no checkpoint before the end unless said."""
    document = yaml.safe_load(DEMO.read_text())
    # A small model has several buckets, and several units of ZeRO, in small ones alone.
    plan = {"tp": 1, "pp": 1, "dp": 1, "bucket_mb": 0.2}
    document["parallelism"] |= plan | dict(parallelism or {})
    document["training"] |= {"eval_every": 0} | training
    document["data"] |= dict(data or {})
    document["checkpoint"]["every"] = 0
    return JobSpec.model_validate(document)


def changed(spec: JobSpec, **sections: Mapping[str, Any]) -> JobSpec:
    document = spec.model_dump(mode="json")
    for section, fields in sections.items():
        document[section] |= dict(fields)
    return JobSpec.model_validate(document)


def train_job(
    spec: JobSpec, directory: Path, *, attempt: int = 1, stop_after: int | None = None
) -> list[FakeReporter]:
    """Runs `loop.train` on all ranks; the reporters by rank. `stop_after`: rank 1 (or 0 alone) asks then."""
    world = spec.parallelism.world_size

    def program(rank: int, store: Any) -> FakeReporter:
        wish = stop_after if rank == min(1, world - 1) else None
        reporter = FakeReporter(stop_after=wish)
        loop.train(spec, context(rank, world, store, directory, reporter=reporter, attempt=attempt))
        return reporter

    return run_ranks(world, program)


def run_engine(spec: JobSpec, body: Any) -> list[Any]:
    """Runs `body(engine, rank)` on all ranks with a built engine and no checkpoints."""
    world = spec.parallelism.world_size

    def program(rank: int, store: Any) -> Any:
        made = context(rank, world, store, Path(tempfile.gettempdir()), reporter=FakeReporter())
        set_default_timeout(made.timeout)
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=world, timeout=made.timeout)
        result = body(Engine(spec, torch.device("cpu"), rank=rank), rank)
        dist.barrier()
        return result

    return run_ranks(world, program)


@dataclass(frozen=True)
class Shard:
    """A rank's part of a parameter."""

    shape: tuple[int, ...]
    """Of the whole."""
    offsets: tuple[int, ...]
    values: torch.Tensor


def shards(engine: Engine) -> dict[str, Shard]:
    """This rank's parameters, and the buffers that training moves."""
    found = {
        name: Shard(
            engine.layouts[name].shape, engine.layouts[name].offsets(), local(parameter).to("cpu", copy=True)
        )
        for name, parameter in engine.named
    }
    for name, buffer in engine.balance.moved_buffers().items():
        found[name] = Shard(tuple(buffer.shape), (0,) * buffer.dim(), buffer.to("cpu", copy=True))
    return found


def assemble(ranks: list[dict[str, Shard]]) -> dict[str, torch.Tensor]:
    """The whole model from the shards of all ranks. Copies of one shard must be equal to the bit."""
    whole: dict[str, torch.Tensor] = {}
    known: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}
    filled: dict[str, int] = {}
    for rank in ranks:
        for name, shard in rank.items():
            if shard.values.numel() == 0:
                continue
            twin = known.setdefault((name, shard.offsets), shard.values)
            assert torch.equal(twin, shard.values), f"{name}: two ranks hold different copies"
            if twin is shard.values:
                place = tuple(slice(o, o + n) for o, n in zip(shard.offsets, shard.values.shape, strict=True))
                whole.setdefault(name, torch.empty(shard.shape, dtype=shard.values.dtype))[place] = twin
                filled[name] = filled.get(name, 0) + twin.numel()
    assert filled == {name: tensor.numel() for name, tensor in whole.items()}, "shards leave gaps or overlap"
    return whole
