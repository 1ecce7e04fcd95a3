"""What one rank holds of a model under a plan: counts of parameters, by how they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.spec.job import JobSpec
from orchestrator.spec.sections import ParallelismSpec, Precision, TrainingSpec


@dataclass(frozen=True, slots=True)
class Stage:
    """A pipeline stage: the whole model without a pipeline."""

    layers: range
    index: int = 0
    """In model order."""
    of: int = 1
    """Stages of the model."""

    @property
    def embeds(self) -> bool:
        return self.index == 0

    @property
    def predicts(self) -> bool:
        return self.index == self.of - 1


@dataclass(frozen=True, slots=True)
class Formats:
    """Bytes of an element."""

    parameter: int
    """Of parameters, optimizer states and the residual stream."""
    gradient: int
    """Of gradients while they are summed."""
    gathered: int
    """Of parameters that ZeRO gathers."""
    product: int
    """Of the results of matrix products."""

    @classmethod
    def of(cls, training: TrainingSpec) -> Formats:
        if training.precision is Precision.FP64:
            return cls(8, 8, 8, 8)
        gradient = 2 if training.gradient_precision == "bf16" else 4
        short = 4 if training.precision is Precision.FP32 else 2
        return cls(4, gradient, short, short)


@dataclass(frozen=True, slots=True)
class Share:
    """Parameters of a rank after tp and ep, before ZeRO. Cuts are taken to be even."""

    dense: float
    """What every token passes; cut by tp where it can be."""
    partial: float
    """Of `dense`, those of which each tp rank's backward gives a part of the gradient."""
    experts: float

    @property
    def total(self) -> float:
        return self.dense + self.experts


def share_of(spec: JobSpec, stages: Sequence[Stage]) -> Share:
    """The share of a rank that holds `stages`."""
    model, plan, vocabulary = spec.model, spec.parallelism, spec.data.vocab_size
    hidden, size, split = model.hidden, model.size_of_head, plan.sequence and plan.tp > 1
    cut = whole = heads = experts = 0.0
    for stage in stages:
        for layer in stage.layers:
            cut += hidden * size * (2 * model.heads + 2 * model.kv_heads)
            cut += size * (model.heads + 2 * model.kv_heads) if model.projection_bias else 0
            heads += 2 * size if model.head_norm else 0
            whole += 2 * hidden
            if model.is_moe(layer):
                assert model.moe is not None
                inner = model.moe.ffn_hidden or model.ffn_hidden
                experts += 3 * hidden * inner * model.moe.experts
                cut += 3 * hidden * inner * model.moe.shared_experts
                whole += hidden * model.moe.experts
                whole += hidden if model.moe.shared_experts and model.moe.shared_gate else 0
            else:
                cut += 3 * hidden * model.ffn_hidden
        if stage.predicts:
            whole += hidden
        tied = model.tied_embeddings and stage.embeds and stage.predicts
        cut += hidden * vocabulary * (stage.embeds + stage.predicts - tied)
    partial = (whole if split else 0.0) + (heads if plan.tp > 1 else 0.0)
    return Share(cut / plan.tp + whole + heads, partial, experts / plan.ep)


@dataclass(frozen=True, slots=True)
class Spread:
    """Over how many ranks a kind of parameter is sharded by ZeRO, and how many hold copies of its shards."""

    shards: int
    replicas: int


def spreads(plan: ParallelismSpec) -> tuple[Spread, Spread]:
    """Of dense parameters and of experts; the views `dense` and `expert` of the engine's mesh."""
    if not plan.zero:
        copies = plan.dp * plan.cp
        return Spread(1, copies), Spread(1, copies * plan.tp // plan.ep)
    replicas = plan.dp // plan.shards
    sharing = plan.shards * plan.cp
    return Spread(sharing, replicas), Spread(sharing * plan.tp // plan.ep, replicas)
