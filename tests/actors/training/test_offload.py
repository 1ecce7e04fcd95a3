"""States on the host or on disk and activations in host memory: the same losses and weights to the bit."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from gang import RankFailedError
from plans import assemble, changed, demo_job, run_engine, shards, train_job
from torch import nn

from actors.training.model.part import Part as ModelPart
from actors.training.offload.activations import install_activation_offload
from actors.training.offload.disk import PREFIX, DiskStates, OffloadDirectoryError, remove_stale
from actors.training.offload.optimizer import HostMemory, OffloadedOptimizer
from actors.training.offload.pool import HostPool
from actors.training.optimizer import RankOptimizer
from orchestrator.spec.sections import OptimizerSpec

SMALL: dict[str, Any] = {"steps": 3, "global_batch": 4, "sequence_length": 32, "eval_sequences": 4}
CPU = torch.device("cpu")


def outcome(
    plan: dict[str, Any], **training: Any
) -> tuple[list[tuple[float, float]], dict[str, torch.Tensor]]:
    """Losses and norms of three steps, and the weights after them."""
    spec = demo_job(parallelism=plan, **SMALL | training)

    def body(engine: Any, rank: int) -> Any:
        results = [engine.train_step(step, stop=False) for step in range(3)]
        return [(r.loss, r.grad_norm) for r in results], shards(engine)

    ranks = run_engine(spec, body)
    return ranks[0][0], assemble([weights for _, weights in ranks])


def assert_same_bits(plan: dict[str, Any], offload: dict[str, Any], **training: Any) -> None:
    with_it, without = outcome(plan, offload=offload, **training), outcome(plan, **training)
    assert with_it[0] == without[0]
    for name, weight in without[1].items():
        assert torch.equal(with_it[1][name], weight), name


@pytest.mark.parametrize(
    ("plan", "offload", "training"),
    [
        pytest.param(
            {"zero": 3, "dp": 2, "microbatches": 2},
            {"optimizer": "host", "activations": True},
            {},
            id="zero3-host",
        ),
        pytest.param(
            {"tp": 2}, {"optimizer": "disk", "activations": True}, {"precision": "bf16"}, id="tp-disk"
        ),
        pytest.param(
            {"pp": 2, "microbatches": 2, "schedule": "zero-bubble"},
            {"optimizer": "host", "activations": True, "pinned_pool_mb": 1},
            {"optimizer": {"name": "sgd", "learning_rate": 0.1}},
            id="pipeline-sgd",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"microbatches": 2},
            {"optimizer": "host", "activations": True},
            {"optimizer": {"name": "muon"}, "recompute": {"mode": "full", "every": 2}},
            id="muon-recompute",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_offload_changes_no_bit(
    plan: dict[str, Any], offload: dict[str, Any], training: dict[str, Any], tmp_path: Path
) -> None:
    where = {"directory": str(tmp_path / "states")} if offload["optimizer"] == "disk" else {}
    assert_same_bits(plan, offload | where, **training)
    if where:
        assert list((tmp_path / "states").iterdir()) == [], "files are gone with their ranks"


def test_a_checkpoint_of_offloaded_states_is_one_without(tmp_path: Path) -> None:
    """Trained offloaded, resumed without, and the other way round: as if nothing had happened."""
    plain = demo_job(**SMALL | {"steps": 5})
    away = changed(plain, training={"offload": {"optimizer": "disk", "directory": str(tmp_path / "states")}})
    whole = [s["loss"] for s in train_job(plain, tmp_path / "whole")[0].steps]
    for first, second in ((plain, away), (away, plain)):
        place = tmp_path / f"{first.training.offload.optimizer}-first"
        train_job(first, place, stop_after=2)
        resumed = train_job(second, place, attempt=2)[0]
        assert resumed.of("resumed")[0]["step"] == 2
        assert [s["loss"] for s in resumed.steps] == whole[2:]


def test_values_pass_in_batches_that_fit_the_pool() -> None:
    """More parameters than the pool holds, and one that is larger than it: same bits, and the pool stays in bounds."""
    shapes = {"layers.0.a": (40, 50), "layers.0.b": (7,), "layers.1.a": (300, 9), "large": (500, 40)}
    limit_bytes = 64_000
    spec = OptimizerSpec(name="adamw")

    def parameters() -> list[tuple[str, nn.Parameter]]:
        random = torch.Generator().manual_seed(1)
        return [(name, nn.Parameter(torch.randn(shape, generator=random))) for name, shape in shapes.items()]

    mine, wanted = parameters(), parameters()
    offloaded = OffloadedOptimizer(
        mine, spec, home=lambda _: HostMemory(), limit_bytes=limit_bytes, device=CPU
    )
    usual = RankOptimizer(wanted, spec)
    for step in range(3):
        for named in (mine, wanted):
            random = torch.Generator().manual_seed(step)
            for _, p in named:
                p.grad = torch.randn(p.shape, generator=random)
        offloaded.step(0.01)
        usual.step(0.01)
        assert 0 < offloaded._pool.held_bytes <= limit_bytes
    for (name, p), (_, q) in zip(mine, wanted, strict=True):
        assert torch.equal(p, q), name
        for quantity, state in usual.state(q).items():
            assert torch.equal(offloaded.state(p)[quantity], state), (name, quantity)
    offloaded.zero_grad()
    assert all(p.grad is None for _, p in mine)


def test_saved_tensors_wait_on_the_host_but_parameters_stay() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.linear(x).t().exp())

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleDict({"0": Layer()})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return cast(torch.Tensor, self.layers["0"](x))

    torch.manual_seed(0)
    part, pool = Part(), HostPool(1 << 20, device=CPU)
    install_activation_offload(ModelPart(part, {0: part.layers["0"]}), pool)
    x = torch.randn(32, 64, requires_grad=True)
    y = part(x)
    # The input of the linear map and the result of exp, 8192 bytes each; not the weight of 16384.
    assert pool.held_bytes == 2 * 32 * 64 * 4
    assert len(pool._lent) == 2
    linear = part.layers["0"].get_submodule("linear")
    assert isinstance(linear, nn.Linear)
    y.sum().backward()
    assert not pool._lent, "buffers come back with the graph"
    again = x.detach().clone().requires_grad_()
    again_y = torch.nn.functional.linear(again, linear.weight.detach(), linear.bias.detach()).exp()
    again_y.sum().backward()  # type: ignore[no-untyped-call]
    assert again.grad is not None
    assert x.grad is not None
    assert torch.allclose(x.grad, again.grad)


def test_the_pool_gives_ordinary_memory_beyond_its_limit() -> None:
    pool = HostPool(1000, device=CPU)
    first, second = pool.take(200, torch.float32), pool.take(200, torch.float32)
    assert pool.held_bytes == 800
    pool.give_back(second)
    pool.give_back(first)
    third = pool.take(200, torch.float32)
    assert third.data_ptr() == first.data_ptr()
    pool.give_back(third)
    pool.take(120, torch.float64)  # another size: what lies unused makes room
    assert pool.held_bytes == 960


def test_a_full_disk_is_told_before_training(tmp_path: Path) -> None:
    told = r"the optimizer states of rank 3 need 1152921504606\.8 MB: .*MB are free"
    with pytest.raises(OffloadDirectoryError, match=told):
        DiskStates(tmp_path / "states", size_bytes=1 << 60, rank=3)
    assert list((tmp_path / "states").iterdir()) == []
    blocked = tmp_path / "a-file"
    blocked.write_text("no directory")
    spec = demo_job(**SMALL, offload={"optimizer": "disk", "directory": str(blocked)})
    with pytest.raises(
        RankFailedError, match=r"OffloadDirectoryError: training\.offload\.directory: .*a-file"
    ):
        train_job(spec, tmp_path / "job")


def test_stale_files_go_and_files_being_made_stay(tmp_path: Path) -> None:
    stale, live, other = (
        tmp_path / f"{PREFIX}1.states",
        tmp_path / f"{PREFIX}2.states",
        tmp_path / "else.states",
    )
    for path in (stale, live, other):
        path.write_bytes(b"x")
    descriptor = os.open(live, os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    remove_stale(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([live, other])
    os.close(descriptor)


def test_pieces_of_a_file_do_not_overlap(tmp_path: Path) -> None:
    states = DiskStates(tmp_path, size_bytes=192, rank=0)
    first, second = (
        states.zeros(torch.Size((3, 5)), torch.float32),
        states.zeros(torch.Size((4,)), torch.float64),
    )
    first.fill_(1.0)
    second.fill_(2.0)
    assert first.sum() == 15
    assert second.sum() == 8
    with pytest.raises(AssertionError, match="more states"):
        states.zeros(torch.Size((17,)), torch.float32)
