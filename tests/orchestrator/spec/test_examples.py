"""Every example is a job that is taken, small enough for the cluster the quickstart makes, and shows its technique."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.spec import JobSpec, read_spec
from orchestrator.spec.sections import ContextMethod, PipelineSchedule

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TECHNIQUES: dict[str, Callable[[JobSpec], bool]] = {
    "ddp": lambda job: job.parallelism.dp > 1 and job.parallelism.zero == 0,
    "zero1": lambda job: job.parallelism.zero == 1,
    "zero2": lambda job: job.parallelism.zero == 2,
    "zero3": lambda job: job.parallelism.zero == 3 and job.parallelism.shards == job.parallelism.dp,
    "hsdp": lambda job: 1 < job.parallelism.shards < job.parallelism.dp,
    "tensor": lambda job: job.parallelism.tp > 1 and not job.parallelism.sequence,
    "sequence": lambda job: job.parallelism.tp > 1 and job.parallelism.sequence,
    "context-ring": lambda job: job.parallelism.cp > 1 and job.parallelism.context is ContextMethod.RING,
    "context-ulysses": lambda job: (
        job.parallelism.cp > 1 and job.parallelism.context is ContextMethod.ULYSSES
    ),
    "pipeline-1f1b": lambda job: drives(job, PipelineSchedule.ONE_F_ONE_B),
    "interleaved": lambda job: drives(job, PipelineSchedule.INTERLEAVED_1F1B),
    "zero-bubble": lambda job: drives(job, PipelineSchedule.ZERO_BUBBLE),
    "zbv": lambda job: drives(job, PipelineSchedule.ZBV),
    "experts": lambda job: job.model.moe is not None and job.parallelism.ep > 1,
    "recompute": lambda job: job.training.recompute.mode == "full",
    "offload": lambda job: job.training.offload.optimizer == "host" and job.training.offload.activations,
}


def drives(job: JobSpec, schedule: PipelineSchedule) -> bool:
    return job.parallelism.pp > 1 and job.parallelism.schedule is schedule


def read(path: Path) -> JobSpec:
    return read_spec(path.read_text(), origin=path.name)


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_taken_and_fits_eight_ranks(path: Path) -> None:
    job = read(path)
    assert job.name == path.stem
    assert job.parallelism.world_size <= 8
    assert path.read_text().startswith("# "), "says in a line what it shows"


@pytest.mark.parametrize("technique", TECHNIQUES)
def test_an_example_shows_its_technique(technique: str) -> None:
    assert TECHNIQUES[technique](read(EXAMPLES / "techniques" / f"{technique}.yaml"))


def test_a_technique_an_example() -> None:
    assert {path.stem for path in (EXAMPLES / "techniques").glob("*.yaml")} >= set(TECHNIQUES)
