"""One side of `trainers.py`, started by torchrun on every rank: the same model, data and optimizer under one trainer.

`python trainer_side.py SIDE` with SIDE one of atoll-ddp, atoll-zero1, -zero2, -zero3, accelerate-ddp, accelerate-fsdp,
deepspeed-zero1, -zero2, -zero3. Trains until it is ended; rank 0 prints a JSON line for each step.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.data.corpus import build_corpus
from actors.training.data.order import SequenceOrder
from actors.training.model.decoder import Decoder
from actors.training.model.initialization import initial_value
from orchestrator.spec import JobSpec

JOB: dict[str, Any] = {
    "name": "trainers",
    "model": {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn_hidden": 768},
    "training": {
        "steps": 100_000,
        "global_batch": 8,
        "sequence_length": 128,
        "optimizer": {"schedule": "constant"},
    },
}

TrainStep = Callable[[int], float]
"""Trains one step (0-based); the mean loss over this rank's tokens, or over all."""


def atoll(spec: JobSpec, rank: int) -> TrainStep:
    from actors.training.engine import Engine

    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    engine = Engine(spec, torch.device("cpu"), rank=rank)
    return lambda step: engine.train_step(step, stop=False).loss


def accelerate(spec: JobSpec, *, sharded: bool) -> TrainStep:
    from accelerate import Accelerator, FullyShardedDataParallelPlugin
    from accelerate.utils import DistributedType

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        reshard_after_forward=True,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Layer"],
        cpu_ram_efficient_loading=False,
    )
    trainer = Accelerator(cpu=True)
    if sharded:  # Accelerate 1.15 takes the plugin on no CPU, and would say nothing and use DDP
        trainer.state.distributed_type, trainer.state.fsdp_plugin = DistributedType.FSDP, plugin
    model, optimizer = trainer.prepare(*model_and_optimizer(spec))
    if sharded != isinstance(model, FSDPModule):
        raise RuntimeError(f"Accelerate made a {type(model).__name__} of the model")
    batches = batches_of(spec, trainer.process_index, trainer.num_processes)

    def step(index: int) -> float:
        inputs, targets = batches(index)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        trainer.backward(loss)
        trainer.clip_grad_norm_(model.parameters(), spec.training.clip_norm)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def deepspeed(spec: JobSpec, *, stage: int) -> TrainStep:
    os.environ["DS_ACCELERATOR"] = "cpu"
    with redirect_stdout(sys.stderr):
        import deepspeed as engine

        engine.init_distributed(dist_backend="gloo")
        model, optimizer = model_and_optimizer(spec)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        config = {
            "train_micro_batch_size_per_gpu": spec.training.global_batch // ranks,
            "gradient_clipping": spec.training.clip_norm,
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
        }
        trainer, *_ = engine.initialize(model=model, optimizer=optimizer, config=config)
    batches = batches_of(spec, rank, ranks)

    def step(index: int) -> float:
        inputs, targets = batches(index)
        loss = F.cross_entropy(trainer(inputs).flatten(0, 1), targets.flatten())
        trainer.backward(loss)
        trainer.step()
        return float(loss.detach())

    return step


def model_and_optimizer(spec: JobSpec) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The whole model with Atoll's initial values, and the optimizer that Atoll uses."""
    training, length = spec.training, spec.training.sequence_length
    model = Decoder(spec.model, vocab_size=spec.data.vocab_size, positions=length)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = tuple(parameter.shape)
            parameter.copy_(initial_value(name, shape, seed=training.seed, layers=spec.model.layers))
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    wanted = training.optimizer
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": wanted.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=wanted.learning_rate,
        betas=wanted.betas,
        eps=wanted.eps,
        fused=True,
    )
    return model, optimizer


def batches_of(spec: JobSpec, rank: int, ranks: int) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    training = spec.training
    corpus = build_corpus(spec.data, sequence_length=training.sequence_length)
    order = SequenceOrder(
        corpus.training,
        sequence_length=training.sequence_length,
        global_batch=training.global_batch,
        seed=training.seed,
    )
    return lambda step: order.batch(step, replica=rank, replicas=ranks)


def built(side: str, rank: int, ranks: int) -> TrainStep:
    trainer, plan = side.split("-")
    zero = int(plan[-1]) if plan.startswith("zero") else 0
    spec = JobSpec.model_validate(JOB | {"parallelism": {"dp": ranks, "zero": zero}})
    if trainer == "atoll":
        return atoll(spec, rank)
    if trainer == "accelerate":
        return accelerate(spec, sharded=plan == "fsdp")
    return deepspeed(spec, stage=zero)


def main() -> None:
    side = sys.argv[1]
    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    step, training = built(side, rank, ranks), JOB["training"]
    tokens = training["global_batch"] * training["sequence_length"]
    for number in itertools.count(1):
        loss = step(number - 1)
        if rank == 0:
            print(json.dumps({"step": number, "tokens": tokens, "loss": loss}), flush=True)


if __name__ == "__main__":
    main()
