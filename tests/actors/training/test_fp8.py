"""fp8: the code that accelerators run, on the CPU, whose scaled product torch computes too, slowly: no job gets there.
It says nothing of an accelerator's own sums."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gang import RankFailedError
from plans import demo_job, run_engine
from torch import Tensor, nn

from actors.training import fp8
from actors.training.fp8 import Fp8Linear, formats_of, fp8_supported, install_fp8, quantize
from actors.training.model.part import Part

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
RULES = {torch.float8_e4m3fn: (3, -6, 448.0), torch.float8_e5m2: (2, -14, 57344.0)}
"""Bits of the mantissa, least exponent of a normal number, largest number (Micikevicius et al. 2022, table 1)."""


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """`x` (float64) to the nearest number of the format, ties to even: by arithmetic, not by torch's conversion."""
    mantissa, least, largest = RULES[dtype]
    _, exponent = torch.frexp(x)  # 0.5 <= |mantissa| < 1
    step = torch.exp2((exponent - 1).clamp(min=least).double() - mantissa)
    return ((x / step).round() * step).clamp(-largest, largest)


def dequantized(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What a tensor is once it has been through fp8, in float64."""
    scale = float(x.abs().max()) / RULES[dtype][2]
    return rounded((x / scale).double(), dtype) * scale


def values(*shape: int, seed: int) -> Tensor:
    """Of magnitudes over many powers of two."""
    drawn = torch.randn(*shape, 2, generator=torch.Generator().manual_seed(seed))
    return drawn[..., 0] * torch.exp2(2 * drawn[..., 1])


@pytest.mark.parametrize("dtype", list(RULES))
def test_a_tensor_is_scaled_to_the_largest_number_and_rounded_to_the_nearest(dtype: torch.dtype) -> None:
    x = values(64, 32, seed=1)
    x8, scale = quantize(x, dtype)
    assert float(x8.double().abs().max()) == RULES[dtype][2]
    assert float(scale) == pytest.approx(float(x.abs().max()) / RULES[dtype][2], rel=1e-6)
    assert torch.equal(x8.double(), rounded((x / scale).double(), dtype))
    assert len(x8.double().abs().unique()) > 20


@pytest.mark.parametrize("dtype", list(RULES))
def test_zeros_stay_zeros_and_what_is_not_finite_is_not_hidden(dtype: torch.dtype) -> None:
    zeros, scale = quantize(torch.zeros(4, 4), dtype)
    assert torch.equal(zeros.float(), torch.zeros(4, 4))
    assert 0 < float(scale) < math.inf
    for broken in (math.inf, math.nan):
        x = torch.ones(4, 4)
        x[1, 1] = broken
        found, scale = quantize(x, dtype)
        assert not bool(torch.isfinite(found.float() * scale).all())


def linear(inputs: int, outputs: int, *, bias: bool = False) -> Fp8Linear:
    made = nn.Linear(inputs, outputs, bias=bias)
    with torch.no_grad():
        made.weight.copy_(values(outputs, inputs, seed=2))
    made.__class__ = Fp8Linear
    assert isinstance(made, Fp8Linear)
    made.formats = formats_of(CPU)
    return made


@pytest.mark.parametrize("rows", [32, 5])
def test_results_and_gradients_are_those_of_the_rounded_tensors(rows: int) -> None:
    """Within the rounding of the format of the result and of sums in fp32; five rows have to be filled up."""
    made = linear(48, 64)
    x = values(1, rows, 48, seed=3).requires_grad_()
    gradient = values(1, rows, 64, seed=4).bfloat16()
    result = made(x)
    result.backward(gradient)
    assert (result.dtype, result.shape) == (torch.bfloat16, (1, rows, 64))
    assert x.grad is not None
    assert made.weight.grad is not None
    x8 = dequantized(x.detach()[0], torch.float8_e4m3fn)
    w8 = dequantized(made.weight.detach().bfloat16().float(), torch.float8_e4m3fn)
    g8 = dequantized(gradient[0].float(), torch.float8_e5m2)
    assert_product(result[0].detach(), x8, w8.T, half_step=2**-8)
    assert_product(x.grad[0], g8, w8, half_step=2**-24)
    assert_product(made.weight.grad, g8.T, x8, half_step=2**-24)


def assert_product(found: Tensor, a: Tensor, b: Tensor, *, half_step: float) -> None:
    """`half_step`: what rounding the result moves it by at most, relative: 2^-(bits of the mantissa + 1)."""
    exact = a @ b
    allowed = 1.01 * half_step * exact.abs() + 1e-5 * (a.abs() @ b.abs())
    assert float(((found.double() - exact).abs() / allowed).max()) <= 1


def test_a_product_is_as_near_as_three_bits_allow() -> None:
    """Rounding to three bits moves a number by a 16th at most and by 2.6 % in the mean square, both factors together by
    3.7 %; what is very small is lost beside that."""
    made = linear(256, 64)
    x = values(64, 256, seed=5)
    exact = x.double() @ made.weight.detach().double().T
    error = float((made(x).detach().double() - exact).norm() / exact.norm())
    assert 0.01 < error < 0.045


def test_a_bias_is_added() -> None:
    made = linear(16, 32, bias=True)
    x = values(16, 16, seed=6)
    with_bias = made(x).detach().clone()
    bias = made.bias.detach().bfloat16()
    made.bias = None
    assert torch.equal(with_bias, made(x) + bias)


# --- Where it is to be had


def test_a_cpu_has_none() -> None:
    assert fp8_supported(CPU) == "this rank trains on cpu, which has no fp8 units"


@pytest.mark.parametrize(
    ("capability", "reason"),
    [
        (
            (8, 6),
            "this rank's accelerator has compute capability 8.6, and those with 8.9 or more have fp8 units",
        ),
        ((8, 9), None),
        ((9, 0), None),
        ((12, 0), None),
    ],
)
def test_cuda_devices_from_ada_on_have_it(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], reason: str | None
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert fp8_supported(CUDA) == reason
    assert formats_of(CUDA).values is torch.float8_e4m3fn


@pytest.mark.parametrize(
    ("name", "has_it", "largest"),
    [("gfx90a:sramecc+", False, 448.0), ("gfx942:sramecc+:xnack-", True, 240.0), ("gfx950", True, 448.0)],
)
def test_amd_devices_from_gfx94_on_have_it_the_first_in_formats_of_their_own(
    monkeypatch: pytest.MonkeyPatch, name: str, has_it: bool, largest: float
) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(gcnArchName=name))
    reason = fp8_supported(CUDA)
    assert (reason is None) is has_it
    assert reason is None or name in reason
    assert torch.finfo(formats_of(CUDA).values).max == largest


# --- Jobs


def job(**changes: Any) -> Any:
    fields: dict[str, Any] = {"steps": 12, "global_batch": 8, "sequence_length": 32, "eval_sequences": 8}
    return demo_job(**fields | {"precision": "fp8"} | changes)


def losses(spec: Any) -> list[float]:
    def body(engine: Any, rank: int) -> list[float]:
        return [engine.train_step(step, stop=False).loss for step in range(spec.training.steps)]

    found: list[float] = run_engine(spec, body)[0]
    return found


def test_a_job_is_refused_at_start_with_the_reason() -> None:
    """Before any data is read: the source is not there either."""
    with pytest.raises(RankFailedError) as refused:
        losses(job(data={"source": "/no/such/text"}))
    assert f"ValueError: {refused.value.failures[0].reason}" == (
        "ValueError: training.precision: is fp8, but this rank trains on cpu, which has no fp8 units; "
        "must be bf16, fp16, fp32 or fp64"
    )


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a CPU through: for the mathematics."""
    monkeypatch.setattr(fp8, "fp8_supported", lambda _: None)


def test_a_job_learns_as_in_bf16(on_cpu: None) -> None:
    short, exact = losses(job()), losses(job(precision="bf16"))
    assert exact[-1] < exact[0] - 0.5
    assert short == pytest.approx(exact, rel=0.02)
    assert short != pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("plan", "training"),
    [
        pytest.param(
            {"dp": 2, "zero": 3},
            {"recompute": {"mode": "full"}},
            id="zero3-recompute",
            marks=pytest.mark.slow,
        ),
        pytest.param({"tp": 2}, {}, id="tp", marks=pytest.mark.slow),
        pytest.param({"pp": 2, "microbatches": 4, "dp": 2}, {}, id="pp-dp", marks=pytest.mark.slow),
        pytest.param({"dp": 2}, {"compile": True}, id="compile", marks=pytest.mark.slow),
        pytest.param({}, {"offload": {"activations": True}}, id="offload", marks=pytest.mark.slow),
    ],
)
def test_plans_differ_by_rounding_alone(on_cpu: None, plan: dict[str, Any], training: dict[str, Any]) -> None:
    wanted = losses(job(parallelism={"microbatches": 2}))
    found = losses(job(parallelism={"microbatches": 1} | plan, **training))
    assert found == pytest.approx(wanted, rel=0.02)


def test_layers_multiply_in_fp8_and_what_is_around_them_does_not(on_cpu: None) -> None:
    def kinds(engine: Any, rank: int) -> set[str]:
        modules = engine.parts[0].named_modules()
        return {name.rpartition(".")[2] for name, module in modules if isinstance(module, Fp8Linear)}

    assert run_engine(job(), kinds) == [{"query", "key", "value", "output", "gate", "up", "down"}]


def test_layers_of_other_sizes_are_refused() -> None:
    block = nn.Sequential(nn.Linear(24, 32), nn.Linear(32, 24))
    with pytest.raises(
        ValueError, match=r"training\.precision: fp8 needs linear maps .* multiples of 16 inputs"
    ):
        install_fp8(Part(block, {0: block}), CPU)
    block.append(nn.Linear(32, 16))
    install_fp8(Part(block, {0: block}), CPU)
    assert [type(module) for module in block] == [nn.Linear, nn.Linear, Fp8Linear]
