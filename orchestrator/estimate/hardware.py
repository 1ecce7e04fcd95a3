"""Accelerators and links by name: the data of hardware.yaml, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from orchestrator.spec.sections import Precision

TERA, GIGA, MICRO, GIB = 1e12, 1e9, 1e-6, 2.0**30


@dataclass(frozen=True, slots=True)
class Path:
    """What a message between accelerators finds: alpha, beta, and the size at which half of beta is reached."""

    bandwidth: float
    """Bytes per second of one accelerator, one direction, with long messages."""
    latency_s: float
    """Of one message, or of one step of a ring."""
    half_bytes: float = 0.0
    kind: str = "unknown"
    achieved: float = 1.0
    """Of the data sheet's bandwidth: what `bandwidth` is of it."""

    def rate(self, size: float) -> float:
        """Bytes per second of a collective over `size` bytes in the whole."""
        return self.bandwidth * size / (size + self.half_bytes) if self.half_bytes else self.bandwidth


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """What programs get of an accelerator of a family; hardware.yaml explains each and names its source."""

    sustained: Mapping[str, float]
    fill: float
    power_exponent: float
    stream: float
    launch_s: float
    flash_forward: float
    flash_backward: float
    flash_half_length: float
    comm_sm: int


@dataclass(frozen=True, slots=True, eq=False)
class Accelerator:
    name: str
    peak: Mapping[str, float]
    """FLOP/s of dense products, by format."""
    memory_bytes: float
    bandwidth: float
    """Bytes per second of its memory, by the data sheet."""
    sm: int
    """Units that compute one tile of a product each."""
    power: float
    """Share of full power that the part is limited to."""
    kernels: Kernels
    island: str
    """Link class inside an island."""
    island_size: int
    network: str
    """Link class of its NIC."""
    source: str

    def sustained_flops(self, precision: str) -> float:
        """FLOP/s of large products, for as long as a training run takes: power limits included."""
        share = self.kernels.sustained
        clock: float = self.power**self.kernels.power_exponent
        return self.peak[precision] * share.get(precision, share["default"]) * clock

    @property
    def stream_bandwidth(self) -> float:
        """Bytes per second that kernels without arithmetic reach."""
        return self.bandwidth * self.kernels.stream


@cache
def accelerators() -> Mapping[str, Accelerator]:
    document = _document()
    families = {name: _kernels(entry) for name, entry in document["kernels"].items()}
    return {name: _accelerator(name, entry, families) for name, entry in document["accelerators"].items()}


@cache
def link_classes() -> Mapping[str, Path]:
    return {
        name: Path(
            entry["bandwidth"] * GIGA * entry["achieved"],
            entry["latency_us"] * MICRO,
            float(entry["half_bytes"]),
            name,
            entry["achieved"],
        )
        for name, entry in _document()["links"].items()
    }


@cache
def accelerator_named(name: str | None) -> Accelerator | None:
    """The accelerator that a driver's name or a fabric's label means: the longest known name that it contains."""
    if name is None:
        return None
    given = name.upper()
    found = [
        (len(known), entry) for entry, names in _names().items() for known in names if known.upper() in given
    ]
    return accelerators()[max(found)[1]] if found else None


def peak_flops(name: str | None, precision: Precision) -> float | None:
    """Peak FLOP/s of the device called `name` by its driver, in the format of the job's products; None when unknown."""
    found = accelerator_named(name)
    if found is None or found.name == "cpu":
        return None
    return found.peak.get(precision.value)


@cache
def _document() -> dict[str, Any]:
    text = (resources.files("orchestrator.estimate") / "hardware.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    return {name: tuple(entry["names"]) for name, entry in _document()["accelerators"].items()}


def _kernels(entry: dict[str, Any]) -> Kernels:
    flash = entry["flash"]
    return Kernels(
        sustained=entry["sustained"],
        fill=entry["fill"],
        power_exponent=entry["power_exponent"],
        stream=entry["stream"],
        launch_s=entry["launch_us"] * MICRO,
        flash_forward=flash["forward"],
        flash_backward=flash["backward"],
        flash_half_length=flash["half_length"],
        comm_sm=entry["comm_sm"],
    )


def _accelerator(name: str, entry: dict[str, Any], families: Mapping[str, Kernels]) -> Accelerator:
    return Accelerator(
        name=name,
        peak={precision: rate * TERA for precision, rate in entry["peak"].items()},
        memory_bytes=entry["memory"] * GIB,
        bandwidth=entry["bandwidth"] * GIGA,
        sm=entry["sm"],
        power=entry.get("power", 1) / entry.get("full_power", 1),
        kernels=families[entry["kernels"]],
        island=entry["island"],
        island_size=entry["island_size"],
        network=entry["network"],
        source=entry["source"],
    )
