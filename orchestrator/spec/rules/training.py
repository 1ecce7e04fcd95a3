"""Training: batches and sequences over ranks, optimizer, precision, compilation, recomputation, offload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from orchestrator.spec.rules.division import must_divide
from orchestrator.spec.sections import ModelSpec, ParallelismSpec, PipelineSchedule, Precision, TrainingSpec
from orchestrator.spec.violations import Violation

SPLIT_BACKWARD = (PipelineSchedule.ZERO_BUBBLE, PipelineSchedule.ZBV)
"""Schedules that compute the gradients of inputs and of weights apart."""


def batch_split(plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    share = plan.dp * plan.microbatches
    if training.global_batch % share:
        yield Violation(
            "training.global_batch",
            training.global_batch,
            f"must be a multiple of parallelism.dp x parallelism.microbatches "
            f"({plan.dp} x {plan.microbatches} = {share}), not {training.global_batch}",
        )


def sequence_split(plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    if plan.cp > 1:
        parts = 2 * plan.cp * (plan.tp if plan.sequence else 1)
        if training.sequence_length % parts:
            message = (
                f"must be a multiple of 2 x cp{' x tp' if plan.sequence else ''} = {parts} (each context rank "
                f"holds two chunks), not {training.sequence_length}"
            )
            yield Violation("training.sequence_length", training.sequence_length, message)
    elif plan.sequence:
        yield from must_divide(
            "parallelism.tp", plan.tp, "training.sequence_length", training.sequence_length
        )


def compiled(plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    """Layers are compiled one by one; of what talks to other ranks inside them the compiler knows tp's alone."""
    if not training.compile:
        return
    for field, value in (("cp", plan.cp), ("ep", plan.ep)):
        if value > 1:
            message = (
                f"is for attention and experts without communication inside; parallelism.{field} is {value}, "
                "so must be false"
            )
            yield Violation("training.compile", True, message)
    if plan.pp > 1 and plan.schedule in SPLIT_BACKWARD:
        message = f"cannot split a compiled backward; must be false with the schedule {plan.schedule.value}"
        yield Violation("training.compile", True, message)
    if training.offload.activations:
        message = "is not supported with training.offload.activations; one of them must be false"
        yield Violation("training.compile", True, message)


def recomputed(plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    mode = training.recompute.mode
    if mode != "none" and plan.pp > 1 and plan.schedule in SPLIT_BACKWARD:
        message = (
            f"must be none with the schedule {plan.schedule.value}, whose split backward would compute "
            f"everything twice, not {mode}"
        )
        yield Violation("training.recompute.mode", mode, message)
    if mode == "elementwise":
        for field, asked in (
            ("compile", training.compile),
            ("offload.activations", training.offload.activations),
        ):
            if asked:
                message = "is not supported with training.recompute.mode elementwise; must be false"
                yield Violation(f"training.{field}", True, message)


def repeated_experts(model: ModelSpec, plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    """What ZeRO does around the experts, a unit of their own inside a layer, differs from forward to its repetition."""
    if training.recompute.mode == "elementwise" and model.moe is not None and plan.zero > 0:
        message = f"must be 0 with model.moe and training.recompute.mode elementwise, not {plan.zero}"
        yield Violation("parallelism.zero", plan.zero, message)


def whole_matrices(plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    """Muon orthogonalises the update of a matrix, which no rank with a part of it can."""
    if training.optimizer.name != "muon":
        return
    for field, value, only in (("tp", plan.tp, 1), ("zero", plan.zero, 0)):
        if value != only:
            message = f"needs whole matrices: parallelism.{field} must be {only} with muon, not {value}"
            yield Violation(f"parallelism.{field}", value, message)


def eight_bits(plan: ParallelismSpec, model: ModelSpec, training: TrainingSpec) -> Iterator[Violation]:
    """Whether a device has fp8 is known on the ranks alone; what no device changes is known here."""
    if training.precision is not Precision.FP8:
        return
    if plan.pp > 1 and plan.schedule in SPLIT_BACKWARD:
        message = (
            f"cannot split the backward of an fp8 product, as the schedule {plan.schedule.value} does; must be bf16, "
            "fp16, fp32 or fp64, not fp8"
        )
        yield Violation("training.precision", "fp8", message)
    if model.imported:
        message = "knows the decoder's products; must be bf16, fp16, fp32 or fp64 with model.import, not fp8"
        yield Violation("training.precision", "fp8", message)


def gradients(plan: ParallelismSpec, training: TrainingSpec) -> Iterator[Violation]:
    if training.gradient_precision != "bf16":
        return
    field = "training.gradient_precision"
    if training.precision is not Precision.BF16:
        message = (
            "rounds away what the products give unless training.precision is bf16; must be fp32 with "
            f"{training.precision.value}, not bf16"
        )
        yield Violation(field, "bf16", message)
    if plan.pp > 1 and plan.schedule in SPLIT_BACKWARD and not plan.zero:
        message = (
            f"the schedule {plan.schedule.value} sums gradients in the format of the parameters it computes with, "
            "fp32 without ZeRO; must be fp32 with parallelism.zero 0, not bf16"
        )
        yield Violation(field, "bf16", message)


def schedule(training: TrainingSpec) -> Iterator[Violation]:
    """The learning rate over the steps."""
    optimizer = training.optimizer
    if optimizer.schedule == "wsd" and optimizer.warmup_steps + optimizer.decay_steps > training.steps:
        message = (
            f"must fit training.steps ({training.steps}) together with warmup_steps, "
            f"not {optimizer.decay_steps} + {optimizer.warmup_steps}"
        )
        yield Violation("training.optimizer.decay_steps", optimizer.decay_steps, message)
    if optimizer.schedule != "wsd" and optimizer.decay_steps:
        message = (
            f"belongs to the schedule wsd; must be 0 with {optimizer.schedule}, not {optimizer.decay_steps}"
        )
        yield Violation("training.optimizer.decay_steps", optimizer.decay_steps, message)
    if optimizer.warmup_steps > training.steps:
        message = f"must be at most training.steps ({training.steps}), not {optimizer.warmup_steps}"
        yield Violation("training.optimizer.warmup_steps", optimizer.warmup_steps, message)
    if optimizer.min_learning_rate > optimizer.learning_rate:
        yield Violation(
            "training.optimizer.min_learning_rate",
            optimizer.min_learning_rate,
            f"must be at most training.optimizer.learning_rate ({optimizer.learning_rate}), "
            f"not {optimizer.min_learning_rate}",
        )


def offload(training: TrainingSpec) -> Iterator[Violation]:
    given, field = training.offload, "training.offload.directory"
    if given.optimizer == "disk" and given.directory is None:
        message = (
            "must name a directory on a local disk of every node when training.offload.optimizer is disk"
        )
        yield Violation(field, None, message)
    if given.directory is None:
        return
    if given.optimizer != "disk":
        message = f"is for training.offload.optimizer disk; leave it out with {given.optimizer}"
        yield Violation(field, given.directory, message)
    path = PurePosixPath(given.directory)
    if not path.is_absolute():
        yield Violation(field, given.directory, f"must be an absolute path, not {given.directory}")
    elif ".." in path.parts or path == PurePosixPath("/"):
        message = f"must name a directory below the root, without `..`, not {given.directory}"
        yield Violation(field, given.directory, message)
