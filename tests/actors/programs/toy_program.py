"""A rank program that counts: what the tests of the actors run where training itself is not the matter.

Each step is one all-reduce over gloo, so a dead rank is felt by the others as in training. `extras`: `steps`;
`pause_s` a step; `raise_rank`, `raise_step`: that rank raises when it begins that step, before it is ready for step 0;
`resume`: continue from the step that rank 0 wrote last.
"""

from __future__ import annotations

import time
from pathlib import Path

import torch
import torch.distributed as dist

from actors.training.context import RankContext
from orchestrator.spec.job import JobSpec


def run(spec: JobSpec, context: RankContext) -> None:
    options = context.extras
    saved = context.job_directory / "toy-step"
    dist.init_process_group(
        "gloo",
        store=context.store(),
        rank=context.rank,
        world_size=context.world_size,
        timeout=context.timeout,
    )
    begin = _resume(saved, context) if options.get("resume", True) else 0
    if options.get("raise_rank") == context.rank and options.get("raise_step") == 0:
        raise ValueError("input that is no good")
    context.reporter.ready()
    for step in range(begin + 1, options.get("steps", 5) + 1):
        if options.get("raise_rank") == context.rank and options.get("raise_step") == step:
            raise ValueError(f"a defect of the program at step {step}")
        value = torch.tensor([float(context.rank)])
        dist.all_reduce(value)
        time.sleep(options.get("pause_s", 0.0))
        if context.rank == 0:
            _save(saved, step)
            context.reporter.step(_record(step, value.item()))
        if context.reporter.should_stop():
            break
    dist.barrier()
    dist.destroy_process_group()


def _save(saved: Path, step: int) -> None:
    """A rank may be killed at any line: the file is whole at every moment."""
    aside = saved.with_suffix(".new")
    aside.write_text(str(step))
    aside.replace(saved)


def _resume(saved: Path, context: RankContext) -> int:
    begin = torch.tensor([int(saved.read_text()) if context.rank == 0 and saved.exists() else 0])
    dist.broadcast(begin, src=0)
    step = int(begin.item())
    if step and context.rank == 0:
        context.reporter.event("resumed", f"continues after step {step}", {"step": step, "path": str(saved)})
    return step


def _record(step: int, loss: float) -> dict[str, float | int]:
    return {
        "step": step,
        "loss": loss,
        "grad_norm": 1.0,
        "learning_rate": 1e-3,
        "tokens": 128,
        "step_time_s": 0.01,
    }
