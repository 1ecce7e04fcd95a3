"""Matrix products in fp8: 8-bit floats and one scale a tensor, taken from the tensor at every use (Micikevicius et al.
2022, "FP8 formats for deep learning").

Values and weights are e4m3, gradients of results e5m2, which has the wider range. A tensor is divided by its scale, its
largest magnitude over that of the format, so that nothing overflows; the device's own product takes the scales and
multiplies them back in. What is quantized are the linear maps inside layers. Head, embedding, attention and the grouped
products of experts are in bf16, as are maps whose sizes are no multiples of 16, which the devices' products want.

Under tp a rank scales its own shard, and a scale of values is that of one micro-batch on one rank: other plans round
otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from actors.training.model.part import Part

MULTIPLE = 16
"""What cuBLASLt and hipBLASLt want of the inner and the last size of a product, in elements."""
SMALLEST = 1e-12
"""Of a largest magnitude: a tensor of zeros has a scale too."""
PRODUCTS = torch.bfloat16
"""Format of results, and of weights before they are quantized: ZeRO gathers them in it, and plans are to be alike."""
ROCM = ("gfx94", "gfx95", "gfx120")
"""Architectures of AMD devices with fp8 products."""


def fp8_supported(device: torch.device) -> str | None:
    """Why products in fp8 are not to be had on `device`; None where they are."""
    if device.type != "cuda":
        return f"this rank trains on {device.type}, which has no fp8 units"
    if torch.version.hip is not None:
        name = _architecture(device)
        if name.startswith(ROCM):
            return None
        return f"this rank's accelerator is {name}, and {', '.join(f'{one}x' for one in ROCM)} have fp8 units"
    capability = torch.cuda.get_device_capability(device)
    if capability >= (8, 9):
        return None
    found = ".".join(map(str, capability))
    return (
        f"this rank's accelerator has compute capability {found}, and those with 8.9 or more have fp8 units"
    )


@dataclass(frozen=True)
class Formats:
    values: torch.dtype = torch.float8_e4m3fn
    gradients: torch.dtype = torch.float8_e5m2


def formats_of(device: torch.device) -> Formats:
    """The formats that the device multiplies: the first AMD ones have a variant without a negative zero."""
    if device.type == "cuda" and torch.version.hip is not None and _architecture(device).startswith("gfx94"):
        return Formats(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
    return Formats()


def _architecture(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).gcnArchName)


def require_fp8(device: torch.device) -> None:
    """ValueError, for people, when the device has no products in fp8."""
    reason = fp8_supported(device)
    if reason is not None:
        raise ValueError(f"training.precision: is fp8, but {reason}; must be bf16, fp16, fp32 or fp64")


def install_fp8(part: Part, device: torch.device) -> None:
    """Lets the linear maps inside the blocks of `part` multiply in fp8. Call once tp has cut them.

    ValueError, for people, when none has the sizes.
    """
    maps = [m for block in part.blocks.values() for m in block.modules() if isinstance(m, nn.Linear)]
    fitting = [m for m in maps if not any(size % MULTIPLE for size in m.weight.shape)]
    if maps and not fitting:
        raise ValueError(
            f"training.precision: fp8 needs linear maps of which a rank holds multiples of {MULTIPLE} inputs and "
            "outputs, and no layer has one; make model.hidden, head sizes and model.ffn_hidden such, or use bf16"
        )
    formats = formats_of(device)
    for linear in fitting:
        # Not a new module: parameters, their names and the hooks of tp stay.
        linear.__class__ = Fp8Linear
        cast(Fp8Linear, linear).formats = formats


class Fp8Linear(nn.Linear):
    formats: Formats

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) in any format -> (..., outputs) in bf16."""
        rows = x.flatten(0, -2)
        count = rows.shape[0]
        if count % MULTIPLE:  # rows are what the weight's gradient sums over
            rows = F.pad(rows, (0, 0, 0, -count % MULTIPLE))
        result = _Fp8Product.apply(rows, self.weight, self.formats)[:count]  # type: ignore[no-untyped-call]
        if self.bias is not None:
            result = result + self.bias.to(result.dtype)
        return cast(Tensor, result.view(*x.shape[:-1], -1))


def quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(x / scale in `dtype`, scale): the scale brings the largest magnitude of `x` to that of the format."""
    largest = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=SMALLEST) / largest
    # Rounding may carry the largest value over the edge, which some formats answer with NaN.
    return (x.float() / scale).clamp(-largest, largest).to(dtype), scale


def scaled_product(
    a: Tensor, b: Tensor, a_scale: Tensor, b_scale: Tensor, dtype: torch.dtype, *, fast: bool
) -> Tensor:
    """a bᵀ for rows `a` (M, K) and `b` (N, K), both contiguous, in `dtype`. `fast`: sums of less precision."""
    return F.scaled_mm(
        a,
        b.t(),
        a_scale,
        F.ScalingType.TensorWise,
        b_scale,
        F.ScalingType.TensorWise,
        output_dtype=dtype,
        use_fast_accum=fast,
    )


class _Fp8Product(Function):
    """x wᵀ for x (rows, inputs) and w (outputs, inputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, formats: Formats) -> Tensor:
        x8, x_scale = quantize(x, formats.values)
        w8, w_scale = quantize(weight.to(PRODUCTS), formats.values)
        # The weight itself, not what it became: that is cheap to make again, and ZeRO frees the one it gathered.
        ctx.save_for_backward(x8, x_scale, weight)
        ctx.formats, ctx.dtype = formats, x.dtype
        return scaled_product(x8, w8, x_scale, w_scale, PRODUCTS, fast=True)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x8, x_scale, weight = ctx.saved_tensors
        g8, g_scale = quantize(gradient, ctx.formats.gradients)
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            w8, w_scale = quantize(weight.to(PRODUCTS), ctx.formats.values)
            to_x = scaled_product(g8, w8.t().contiguous(), g_scale, w_scale, ctx.dtype, fast=False)
        if ctx.needs_input_grad[1]:
            columns = x8.t().contiguous()
            to_weight = scaled_product(
                g8.t().contiguous(), columns, g_scale, x_scale, weight.dtype, fast=False
            )
        return to_x, to_weight, None
