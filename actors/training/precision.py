"""Number formats: fp64 and fp32 parameters, or bf16 and fp16 matrix products over fp32 parameters.

Products in a short format are autocast; with ZeRO the gathered parameters themselves are in that format (FSDP2's mixed
precision), which halves what is gathered, and autocast finds nothing left to convert. Gradients are summed in the
format of the parameters, or in bf16.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from actors.training.parallel.vocabulary import VocabularyEmbedding
from orchestrator.spec.sections import Precision, TrainingSpec

SHORT = {Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16, Precision.FP8: torch.bfloat16}
"""Of fp8 what is around its own products, which `fp8.py` has."""


def parameter_dtype(precision: Precision) -> torch.dtype:
    """Format of parameters, optimizer state and of the residual stream between stages."""
    return torch.float64 if precision is Precision.FP64 else torch.float32


def product_dtype(precision: Precision) -> torch.dtype:
    """Format of the results of matrix products, the logits among them."""
    return SHORT.get(precision, parameter_dtype(precision))


def gradient_dtype(training: TrainingSpec) -> torch.dtype:
    """Format in which gradients are kept and summed, over micro-batches and over ranks."""
    return torch.bfloat16 if training.gradient_precision == "bf16" else parameter_dtype(training.precision)


def mixed_precision(training: TrainingSpec) -> MixedPrecisionPolicy:
    """What FSDP2 gathers in and reduces in. Inputs keep their format: the residual stream stays fp32."""
    return MixedPrecisionPolicy(
        param_dtype=SHORT.get(training.precision),
        reduce_dtype=gradient_dtype(training),
        cast_forward_inputs=False,
    )


def keep_gradients_in(dtype: torch.dtype, parameters: Iterable[nn.Parameter]) -> None:
    """Lets `.grad` have another format than its parameter: whatever autograd or FSDP2 puts there first is converted,
    and what they add to it is rounded to it. Call before other hooks that look at `.grad`."""

    def convert(parameter: Tensor) -> None:
        if parameter.grad is not None and parameter.grad.dtype != dtype:
            parameter.grad = parameter.grad.to(dtype)

    for parameter in parameters:
        if parameter.dtype != dtype:
            parameter.grad_dtype = None  # any format
            parameter.register_post_accumulate_grad_hook(convert)  # type: ignore[no-untyped-call]


def begin_residual_stream_in(dtype: torch.dtype, part: nn.Module) -> None:
    """Rows of an embedding that ZeRO gathers are short: before tp adds them up or a stage sends them on, they get the
    format that the residual stream has under every plan."""
    for module in part.modules():
        if isinstance(module, nn.Embedding | VocabularyEmbedding):
            module.register_forward_hook(lambda _, __, rows: rows.to(dtype), prepend=True)


def install_autocast(part: nn.Module, precision: Precision, device: torch.device) -> None:
    """Runs the forward of `part` under autocast when the precision is a short one.

    Wraps the forward and not the whole step: backward must run outside (its formats follow from the forward), and a
    pipeline schedule interleaves both. The residual stream stays fp32: additions are not autocast.
    """
    if precision not in SHORT:
        return
    forward = part.forward

    @wraps(forward)
    def autocast_forward(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device.type, dtype=SHORT[precision]):
            return forward(*args, **kwargs)

    part.forward = autocast_forward
