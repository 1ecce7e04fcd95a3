"""Peak rates of accelerators, from their makers' data sheets: dense products, without sparsity."""

from __future__ import annotations

from orchestrator.spec.sections import Precision

_TERA = 1e12
_SHORT, _SINGLE, _DOUBLE = "short", "single", "double"
_FORMAT = {
    Precision.BF16: _SHORT,
    Precision.FP16: _SHORT,
    Precision.FP32: _SINGLE,
    Precision.FP64: _DOUBLE,
}

# The first name that the device's contains counts: longer names before those they contain.
_PEAKS: tuple[tuple[str, dict[str, float]], ...] = (
    ("GB200", {_SHORT: 2500, _SINGLE: 80, _DOUBLE: 40}),
    ("B200", {_SHORT: 2250, _SINGLE: 75, _DOUBLE: 37}),
    ("H200", {_SHORT: 989.4, _SINGLE: 66.9, _DOUBLE: 66.9}),
    ("H100 PCIE", {_SHORT: 756, _SINGLE: 51.2, _DOUBLE: 51.2}),
    ("H100 NVL", {_SHORT: 835, _SINGLE: 60, _DOUBLE: 60}),
    ("H100", {_SHORT: 989.4, _SINGLE: 66.9, _DOUBLE: 66.9}),
    ("A100", {_SHORT: 312, _SINGLE: 19.5, _DOUBLE: 19.5}),
    ("L40S", {_SHORT: 362, _SINGLE: 91.6}),
    ("V100", {_SHORT: 125, _SINGLE: 15.7, _DOUBLE: 7.8}),
    ("MI300X", {_SHORT: 1307.4, _SINGLE: 163.4, _DOUBLE: 163.4}),
    ("MI250X", {_SHORT: 383, _SINGLE: 95.7, _DOUBLE: 95.7}),
)
"""Tera-FLOP/s of matrix products by format. `single` is true fp32: torch leaves TF32 off unless it is told."""


def peak_flops(name: str | None, precision: Precision) -> float | None:
    """Peak FLOP/s of the device called `name` by its driver, in the format of the job's products; None when unknown."""
    if name is None or precision not in _FORMAT:
        return None
    for known, rates in _PEAKS:
        if known in name.upper():
            rate = rates.get(_FORMAT[precision])
            return None if rate is None else rate * _TERA
    return None
