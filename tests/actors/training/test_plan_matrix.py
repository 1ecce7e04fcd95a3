"""B1: the same job has the same losses and weights under every plan of the matrix (`matrix.py`).

Ten steps against one process: losses, gradient norms, held-back loss and final weights within 1e-9 relative in float64
(seen: 1e-14), losses within 1e-5 in float32.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gang import FakeReporter, context, run_ranks
from matrix import IMPOSSIBLE, PLANS, QUICK, all_pairs, choices, job, pairs
from plans import assemble, shards

from actors.training import device as devices
from actors.training.engine import Engine
from actors.training.parallel.mesh import set_default_timeout
from orchestrator.spec.parse import parse_spec


@dataclass(frozen=True)
class Run:
    losses: list[float]
    norms: list[float]
    held_back: float
    weights: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def accelerated(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("device") == "accelerator")


def run(line: str, directory: Path, *, accelerated: bool) -> dict[str, Run]:
    """The plan in float64 and then in float32, on the same ranks."""
    specs = {p: job(line, precision=p, directory=str(directory)) for p in ("fp64", "fp32")}
    world = specs["fp64"].parallelism.world_size

    def program(rank: int, store: Any) -> dict[str, Any]:
        made = context(rank, world, store, Path(tempfile.gettempdir()), reporter=FakeReporter())
        set_default_timeout(made.timeout)
        device = devices.bind() if accelerated else torch.device("cpu")
        dist.init_process_group(
            devices.backend(device), store=store(), rank=rank, world_size=world, timeout=made.timeout
        )
        found = {}
        for precision, spec in specs.items():
            engine = Engine(spec, device, rank=rank)
            results = [engine.train_step(step, stop=False) for step in range(spec.training.steps)]
            losses, norms = [r.loss for r in results], [r.grad_norm for r in results]
            found[precision] = (losses, norms, engine.evaluate().loss, shards(engine))
        dist.barrier()
        return found

    ranks = run_ranks(world, program)
    for rank in ranks:
        for precision, of_rank in rank.items():
            assert of_rank[:3] == ranks[0][precision][:3], f"{precision}: ranks disagree on the totals"
    return {
        precision: Run(*ranks[0][precision][:3], assemble([rank[precision][3] for rank in ranks]))
        for precision in specs
    }


@cache
def alone(experts: bool, *, accelerated: bool) -> dict[str, Run]:
    return run("ep1" if experts else "", Path(tempfile.gettempdir()), accelerated=accelerated)


@pytest.mark.parametrize(
    "line",
    [pytest.param(p, marks=() if p in QUICK else pytest.mark.slow, id=p.replace(" ", "+")) for p in PLANS],
)
@pytest.mark.timeout(900)
def test_every_plan_is_one_process(line: str, tmp_path: Path, accelerated: bool) -> None:
    world = job(line, precision="fp32", directory=str(tmp_path)).parallelism.world_size
    if accelerated and world > 1:
        pytest.skip(f"a plan of {world} ranks, and one accelerator")
    found = run(line, tmp_path, accelerated=accelerated)
    wanted = alone(choices(line)["experts"] != "dense", accelerated=accelerated)
    exact, reference = found["fp64"], wanted["fp64"]
    assert exact.losses == pytest.approx(reference.losses, rel=1e-9, abs=0)
    assert exact.norms == pytest.approx(reference.norms, rel=1e-9, abs=0)
    assert exact.held_back == pytest.approx(reference.held_back, rel=1e-9, abs=0)
    assert exact.weights.keys() == reference.weights.keys()
    for name, weight in reference.weights.items():
        error = float((exact.weights[name] - weight).norm() / weight.norm())
        assert error < 1e-9, f"{name}: {error:.1e}"
    assert found["fp32"].losses == pytest.approx(wanted["fp32"].losses, rel=1e-5, abs=0)


def test_the_reference_learns(accelerated: bool) -> None:
    """A loss that stands still would be equal under any plan."""
    for experts in (False, True):
        losses = alone(experts, accelerated=accelerated)["fp64"].losses
        assert losses[-1] < losses[0] - 0.5


def test_the_matrix_covers_every_pair_of_choices(capsys: pytest.CaptureFixture[str]) -> None:
    covered = set().union(*(pairs(line) for line in PLANS))
    with capsys.disabled():
        print(f"\n{len(PLANS)} plans cover {len(covered)} pairs of choices; impossible: {len(IMPOSSIBLE)}")
        for first in sorted({pair[0] for pair in covered}):
            print(f"  {first}: {' '.join(sorted(second for one, second in covered if one == first))}")
    assert len(PLANS) >= 60
    assert all_pairs() - covered == IMPOSSIBLE


def test_every_plan_is_one_that_a_user_can_submit() -> None:
    for line in PLANS:
        spec = job(line, precision="fp32", directory="/scratch")
        assert parse_spec(spec.model_dump(mode="json")) == spec, line
        assert spec.parallelism.world_size <= 8, line
