"""Schedule, initial values, clipping, buckets, pipeline split and the split cross-entropy, each against a reference."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from gang import run_ranks
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.decoder import Decoder
from actors.training.model.initialization import initial_value, initialize
from actors.training.model.rotary import rotary_table
from actors.training.optimizer import RankOptimizer, learning_rate
from actors.training.parallel.clip import add_up_step, scale_gradients
from actors.training.parallel.collectives import copy_in, gather_positions, reduce_out, scatter_positions
from actors.training.parallel.data_parallel import GradientReducer
from actors.training.parallel.layout import ParameterLayout, Span
from actors.training.parallel.mesh import build_mesh
from actors.training.parallel.vocabulary import sharded_cross_entropy
from orchestrator.estimate.stages import split_layers
from orchestrator.placement.mesh import Mesh
from orchestrator.spec.sections import ModelSpec, MoeSpec, OptimizerSpec, ParallelismSpec

SMALL = ModelSpec(layers=2, hidden=32, heads=4, kv_heads=2, ffn_hidden=48)


def small_decoder() -> Decoder:
    return Decoder(SMALL, vocab_size=64, positions=16)


def layouts_of(module: nn.Module) -> dict[str, ParameterLayout]:
    return {name: ParameterLayout(tuple(p.shape)) for name, p in module.named_parameters()}


# --- learning rate and optimizer


def test_warm_up_then_half_a_cosine() -> None:
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=4, schedule="cosine", min_learning_rate=0.1)
    rates = [learning_rate(spec, step=step, steps=14) for step in range(15)]
    assert rates[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert rates[4] == 1.0
    assert rates[9] == pytest.approx(0.55)  # half-way down
    assert rates[14] == pytest.approx(0.1)
    assert all(a > b for a, b in itertools.pairwise(rates[4:]))


def test_constant_after_warm_up() -> None:
    spec = OptimizerSpec(learning_rate=0.5, warmup_steps=1, schedule="constant")
    assert [learning_rate(spec, step=step, steps=3) for step in range(3)] == [0.25, 0.5, 0.5]


def test_matrices_decay_and_norms_do_not() -> None:
    model = small_decoder()
    optimizer = RankOptimizer(list(model.named_parameters()), OptimizerSpec(weight_decay=0.1))
    groups = [group for one in optimizer.optimizers for group in one.param_groups]
    decay = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
    found = {name: decay[id(p)] for name, p in model.named_parameters()}
    assert {n for n, d in found.items() if d == 0} == {n for n in found if "norm" in n}
    assert found["embedding.weight"] == found["head.weight"] == 0.1


# --- initial values


def test_initial_values_follow_from_seed_and_name() -> None:
    first = initial_value("layers.0.attention.query.weight", (32, 32), seed=1, layers=2)
    assert torch.equal(first, initial_value("layers.0.attention.query.weight", (32, 32), seed=1, layers=2))
    assert not torch.equal(
        first, initial_value("layers.1.attention.query.weight", (32, 32), seed=1, layers=2)
    )
    assert not torch.equal(
        first, initial_value("layers.0.attention.query.weight", (32, 32), seed=2, layers=2)
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("layers.0.feed_forward.up.weight", 1 / 16),
        ("layers.0.feed_forward.down.weight", 1 / 16 / math.sqrt(8)),
    ],
)
def test_initial_deviation(name: str, wanted: float) -> None:
    value = initial_value(name, (512, 256), seed=7, layers=4)
    # Standard error of a deviation over n draws: deviation / sqrt(2 n); 5 of them.
    assert float(value.std()) == pytest.approx(wanted, rel=5 / math.sqrt(2 * value.numel()))


def test_a_stage_has_the_values_of_the_whole() -> None:
    whole = small_decoder()
    initialize(whole, layouts_of(whole), seed=5)
    stage = Decoder(SMALL, vocab_size=64, positions=16, layers=[1], embeds=False)
    initialize(stage, layouts_of(stage), seed=5)
    named = dict(whole.named_parameters())
    assert {"layers.1.attention.query.weight", "head.weight"} < {n for n, _ in stage.named_parameters()}
    assert all(torch.equal(p, named[n]) for n, p in stage.named_parameters())


# --- the model


def test_the_model_is_causal_and_sees_positions() -> None:
    model = small_decoder()
    initialize(model, layouts_of(model), seed=5)
    tokens = torch.arange(16).view(1, 16)
    changed = tokens.clone()
    changed[0, 9] = 40
    before, after = model(tokens), model(changed)
    assert torch.equal(before[:, :9], after[:, :9])
    assert not torch.allclose(before[:, 9:], after[:, 9:])
    swapped = tokens[:, [1, 0, *range(2, 16)]]
    assert not torch.allclose(model(swapped)[:, -1], before[:, -1], rtol=1e-4)


def test_rotary_angles() -> None:
    table = rotary_table(ModelSpec(hidden=16, heads=4, rope_theta=100.0), torch.arange(8))
    # Frequencies theta^(-2i/4): 1 and 1/10.
    assert table[0, 3].tolist() == pytest.approx([math.cos(3.0), math.cos(0.3)])
    assert table[1, 3].tolist() == pytest.approx([math.sin(3.0), math.sin(0.3)])


# --- pipeline split


def test_layers_are_split_with_embedding_and_head_counted() -> None:
    assert [
        len(r) for r in split_layers(ModelSpec(layers=8, hidden=64), ParallelismSpec(pp=4), vocab_size=8)
    ] == [
        2,
        2,
        2,
        2,
    ]
    # One layer of this model has 128*(32*(8+4)+3*384) = 196,608 parameters, the tables 3 layers' worth each.
    sizes = [len(r) for r in split_layers(ModelSpec(layers=10), ParallelismSpec(pp=4), vocab_size=4608)]
    assert sizes == [1, 4, 4, 1]


def test_a_split_by_hand() -> None:
    plan = ParallelismSpec(pp=3, layers_per_stage=(1, 5, 2))
    assert split_layers(ModelSpec(layers=8), plan, vocab_size=8) == [range(1), range(1, 6), range(6, 8)]


def test_layers_with_experts_weigh_what_a_token_passes() -> None:
    # Attention 4 x 8 x 8 = 256, feed-forward 3 x 8 x 8 = 192; with two of the experts 384: a stage holds 4 plain layers
    # (1,792 and no ends to speak of) or 3 with experts (1,920).
    moe = MoeSpec(experts=8, top_k=2, dense_layers=4)
    model = ModelSpec(layers=7, hidden=8, heads=1, kv_heads=1, ffn_hidden=8, moe=moe)
    found = split_layers(model, ParallelismSpec(pp=2), vocab_size=1)
    assert found == [range(4), range(4, 7)]


def test_a_split_covers_every_layer_once() -> None:
    for layers in range(1, 12):
        for stages in range(1, layers + 1):
            parts = split_layers(ModelSpec(layers=layers), ParallelismSpec(pp=stages), vocab_size=1000)
            assert [i for part in parts for i in part] == list(range(layers))
            assert all(len(part) >= 1 for part in parts)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"parallelism\.pp: 3 stages need as many layers, model\.layers is 2"
    ):
        split_layers(SMALL, ParallelismSpec(pp=3), vocab_size=64)


# --- with ranks


def test_mesh_numbers_ranks_as_placement_does() -> None:
    plan = ParallelismSpec(tp=2, pp=2, dp=2)

    def program(rank: int, store: Any) -> dict[str, list[int]]:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=8)
        mesh = build_mesh(plan, torch.device("cpu"), rank=rank, experts=False)
        return {axis: dist.get_process_group_ranks(mesh.group(axis)) for axis in ("tp", "pp", "dp")}

    placed = Mesh.of(plan)
    for rank, groups in enumerate(run_ranks(8, program)):
        for axis, members in groups.items():
            assert tuple(members) in placed.groups(axis)
            assert rank in members


def test_norm_and_clip_are_those_of_torch() -> None:
    def program(rank: int, store: Any) -> Any:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=1)
        found = []
        for double in (False, True):
            model = small_decoder().to(torch.float64 if double else torch.float32)
            initialize(model, layouts_of(model), seed=5)
            F.cross_entropy(model(torch.arange(16).view(1, 16)).flatten(0, 1), torch.arange(16)).backward()
            reference = [p.grad.clone() for p in model.parameters()]
            totals = add_up_step(
                list(model.named_parameters()),
                layouts_of(model),
                torch.tensor(1.5),
                stop=True,
                mesh=build_mesh(ParallelismSpec(), torch.device("cpu"), rank=0, experts=False),
            )
            scale_gradients(list(model.parameters()), norm=totals.gradient_norm, max_norm=0.25)
            ours = [p.grad.clone() for p in model.parameters()]
            for parameter, gradient in zip(model.parameters(), reference, strict=True):
                parameter.grad = gradient
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            worst = max(
                float((a - p.grad).abs().max()) for a, p in zip(ours, model.parameters(), strict=True)
            )
            found.append((totals, float(norm), worst))
        return found

    single, double = run_ranks(1, program)[0]
    for (totals, norm, worst), bound in ((single, 1e-6), (double, 1e-14)):
        assert (totals.loss, totals.stop) == (1.5, True)
        assert norm > 0.25, "the clip must be active"
        assert totals.gradient_norm == pytest.approx(norm, rel=bound)
        assert worst <= bound


def test_gradients_below_the_bound_are_left_alone() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.tensor([0.1, 0.2, 0.3])
    scale_gradients([parameter], norm=0.37, max_norm=1.0)
    assert torch.equal(parameter.grad, torch.tensor([0.1, 0.2, 0.3]))


@pytest.mark.parametrize(("bucket_bytes", "buckets"), [(1, 4), (300, 2), (1 << 20, 1)])
def test_buckets_add_up_after_the_last_accumulation(bucket_bytes: int, buckets: int) -> None:
    """Parameters of 280, 56, 168 and 24 bytes, taken from the last one on."""

    def program(rank: int, store: Any) -> Any:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=3)
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        plain = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        plain.load_state_dict(model.state_dict())
        group = dist.group.WORLD
        reducer = GradientReducer(
            list(model.parameters()), group, dtype=torch.float64, accumulations=2, bucket_bytes=bucket_bytes
        )
        for _ in range(2):  # a second step: the counters start again
            model.zero_grad()
            for micro in range(2):
                model(torch.full((1, 5), rank + 0.5 * micro, dtype=torch.float64)).sum().backward()
            # No gradient is there beside its bucket, even before the sums are in.
            assert len({p.grad.untyped_storage().data_ptr() for p in model.parameters()}) == buckets
            reducer.finish()
        for other in range(3):
            for micro in range(2):
                plain(torch.full((1, 5), other + 0.5 * micro, dtype=torch.float64)).sum().backward()
        return [(a.grad, b.grad) for a, b in zip(model.parameters(), plain.parameters(), strict=True)]

    for rank in run_ranks(3, program):
        for found, wanted in rank:
            assert torch.allclose(found, wanted, rtol=1e-13, atol=0)


def test_collectives_are_each_others_adjoint() -> None:
    """<f(x), y> = <x, f'(y)> summed over ranks, for both pairs."""

    def program(rank: int, store: Any) -> Any:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=2)
        group = dist.group.WORLD
        generator = torch.Generator().manual_seed(rank)
        found = []
        for operation in (gather_positions, scatter_positions):
            x = torch.randn(2, 4, 3, dtype=torch.float64, generator=generator, requires_grad=True)
            out = operation(x, group)
            y = torch.randn(out.shape, dtype=torch.float64, generator=generator)
            (back,) = torch.autograd.grad(out, x, y)
            found.append((float((out * y).sum()), float((x * back).sum())))
        x = torch.full((1, 2, 3), rank + 1.0, dtype=torch.float64, requires_grad=True)
        (entered,) = torch.autograd.grad(copy_in(x, group), x, torch.full_like(x, rank + 1.0))
        left = reduce_out(x, group)
        return found, float(entered[0, 0, 0]), float(left[0, 0, 0])

    ranks = run_ranks(2, program)
    for pair in range(2):
        forward, backward = (sum(rank[0][pair][side] for rank in ranks) for side in (0, 1))
        assert forward == pytest.approx(backward, rel=1e-12)
    assert [rank[1:] for rank in ranks] == [(3.0, 3.0), (3.0, 3.0)]


@pytest.mark.parametrize("vocabulary", [12, 13])
def test_split_cross_entropy_is_the_whole_one(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, vocabulary, dtype=torch.float64, generator=generator) * 30
    targets = torch.tensor([0, vocabulary - 1, 3, -100, 7, 6])
    reference = logits.clone().requires_grad_(True)
    F.cross_entropy(reference, targets, reduction="sum").mul(0.5).backward()
    wanted = F.cross_entropy(logits, targets, reduction="sum")

    def program(rank: int, store: Any) -> Any:
        dist.init_process_group("gloo", store=store(), rank=rank, world_size=2)
        span = Span(vocabulary, 2, rank)
        mine = logits.narrow(1, span.start, span.length).clone().requires_grad_(True)
        loss = sharded_cross_entropy(mine, targets, span=span, ignored=-100, group=dist.group.WORLD)
        loss.mul(0.5).backward()
        return float(loss.detach()), mine.grad

    ranks = run_ranks(2, program)
    assert [loss for loss, _ in ranks] == pytest.approx([float(wanted)] * 2, rel=1e-13)
    assert torch.allclose(torch.cat([g for _, g in ranks], dim=1), reference.grad, rtol=1e-10, atol=1e-14)


# --- the process


def test_import_starts_no_thread_and_no_process_group() -> None:
    program = (
        "import os, threading, actors.training.loop\n"
        "import torch, torch.distributed as dist\n"
        "print(len(os.listdir('/proc/self/task')), threading.active_count(), dist.is_initialized(), "
        "torch.cuda.is_initialized())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.split() == ["1", "1", "False", "False"]
