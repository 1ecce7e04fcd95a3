"""Mixtures of experts: their own choices, and their split over ranks."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.spec.rules.division import must_divide
from orchestrator.spec.sections import ModelSpec, ParallelismSpec, Precision, TrainingSpec
from orchestrator.spec.violations import Violation

ROW_BYTES = 16


def choices(model: ModelSpec) -> Iterator[Violation]:
    moe = model.moe
    if model.imported or moe is None:
        return
    if moe.top_k > moe.experts:
        message = f"must be at most model.moe.experts ({moe.experts}), not {moe.top_k}"
        yield Violation("model.moe.top_k", moe.top_k, message)
    if moe.shared_gate and not moe.shared_experts:
        message = (
            "gates shared experts, of which there are none: give model.moe.shared_experts, or leave it out"
        )
        yield Violation("model.moe.shared_gate", True, message)
    if moe.dense_layers >= model.layers:
        message = (
            f"must be less than model.layers ({model.layers}), not {moe.dense_layers}: "
            "no layer would have experts"
        )
        yield Violation("model.moe.dense_layers", moe.dense_layers, message)


def split(plan: ParallelismSpec, model: ModelSpec) -> Iterator[Violation]:
    moe = model.moe
    if model.imported:
        return
    if moe is None:
        if plan.ep > 1:
            message = f"needs experts: model.moe is not given, so must be 1, not {plan.ep}"
            yield Violation("parallelism.ep", plan.ep, message)
        return
    yield from must_divide("parallelism.ep", plan.ep, "model.moe.experts", moe.experts)
    ranks = (plan.shards if plan.zero else plan.dp) * plan.cp * plan.tp
    what = "dp_shard" if plan.zero else "dp"
    if ranks % plan.ep:
        message = (
            f"must divide {what} x cp x tp = {ranks} ranks, over which experts are spread; {plan.ep} does not"
        )
        yield Violation("parallelism.ep", plan.ep, message)
    if plan.tp > 1 and not plan.sequence:
        message = "must be true with experts and tp > 1: each tensor rank routes its own positions"
        yield Violation("parallelism.sequence", False, message)
    if moe.shared_experts:
        inner = (moe.ffn_hidden or model.ffn_hidden) * moe.shared_experts
        yield from must_divide("parallelism.tp", plan.tp, "the inner size of the shared experts", inner)


def resharding(plan: ParallelismSpec, model: ModelSpec) -> Iterator[Violation]:
    """States of experts are shared by fewer ranks than others: each ep rank has its own experts."""
    value = plan.reshard_after_forward
    if model.imported or model.moe is None or plan.ep == 1 or plan.zero != 3 or type(value) is not int:
        return
    message = f"must be true or false with experts over parallelism.ep {plan.ep} ranks, not {value}"
    yield Violation("parallelism.reshard_after_forward", value, message)


def grouped_product(model: ModelSpec, training: TrainingSpec) -> Iterator[Violation]:
    """torch.nn.functional.grouped_mm wants rows that begin at multiples of 16 bytes; float64 goes another way."""
    if model.imported or model.moe is None or training.precision is Precision.FP64:
        return
    multiple = ROW_BYTES // (4 if training.precision is Precision.FP32 else 2)
    inner = "model.ffn_hidden" if model.moe.ffn_hidden is None else "model.moe.ffn_hidden"
    for field, size in (("model.hidden", model.hidden), (inner, model.moe.ffn_hidden or model.ffn_hidden)):
        if size % multiple:
            message = (
                f"must be a multiple of {multiple} with experts in {training.precision.value}, not {size}: "
                f"rows of the grouped product begin at multiples of {ROW_BYTES} bytes"
            )
            yield Violation(field, size, message)


def compiled(model: ModelSpec, training: TrainingSpec) -> Iterator[Violation]:
    """torch.compile traces grouped_mm for bf16 alone; float64 goes another way."""
    if model.imported or model.moe is None or not training.compile:
        return
    if training.precision in (Precision.BF16, Precision.FP8, Precision.FP64):  # beside fp8 it is in bf16
        return
    message = (
        f"cannot trace the grouped product of experts in {training.precision.value}; must be false, or "
        "training.precision bf16"
    )
    yield Violation("training.compile", True, message)
