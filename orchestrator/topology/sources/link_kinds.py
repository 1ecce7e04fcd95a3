"""Names of link classes, as `estimate/hardware.yaml` has them: `nvlink4`, `infinity-fabric`, `pcie5`, `ib-ndr`.

`nvlink` and `pcie` alone: the generation is not known.
"""

from __future__ import annotations

import re

_BRANDS = frozenset(
    {"nvidia", "tesla", "amd", "instinct", "geforce", "quadro", "graphics", "device", "advanced"}
)
_NVLINK_OF_MODEL = {
    "P100": 1,
    "V100": 2,
    "A100": 3,
    "A800": 3,
    "A30": 3,
    "A40": 3,
    "RTXA6000": 3,
    "RTX3090": 3,
    "H100": 4,
    "H800": 4,
    "H200": 4,
    "H20": 4,
    "GH200": 4,
    "B100": 5,
    "B200": 5,
    "B300": 5,
    "GB200": 5,
    "GB300": 5,
}
"""NVLink generation by model (NVIDIA's data sheets)."""
_NVLINK_OF_SM = {60: 1, 70: 2, 72: 2, 80: 3, 86: 3, 90: 4, 100: 5, 103: 5}
"""By compute capability, as NCCL's topology files give it (`sm`)."""
_PCIE_OF_RATE = {
    "2.5": 1,
    "5": 2,
    "5.0": 2,
    "8": 3,
    "8.0": 3,
    "16": 4,
    "16.0": 4,
    "32": 5,
    "32.0": 5,
    "64": 6,
    "64.0": 6,
}
"""PCI Express generation by transfers a second and lane, GT/s."""
_IB_OF_GBPS = {10: "sdr", 20: "ddr", 40: "qdr", 56: "fdr", 100: "edr", 200: "hdr", 400: "ndr", 800: "xdr"}
"""InfiniBand speed by the rate of four lanes, Gb/s."""


def gpu_model(name: str) -> str | None:
    """`H100` of `NVIDIA H100 80GB HBM3`, `V100` of `Tesla-V100-SXM2-16GB`, `RTX3090` of `NVIDIA GeForce RTX 3090`."""
    words = [word for word in re.split(r"[\s_-]+", name.strip()) if word and word.lower() not in _BRANDS]
    if not words:
        return None
    if words[0].upper() == "RTX" and len(words) > 1:
        return f"RTX{words[1]}".upper()
    return words[0].upper()[:63]


def nvlink_of_model(model: str | None, links: int = 0) -> str | None:
    """Link class of a GPU model's NVLink; None where it has none or is not known.

    `links` of a pair tell the bridges of PCI Express cards (12) from the switches of boards (18).
    """
    generation = _NVLINK_OF_MODEL.get(model or "")
    if generation is None:
        return None
    return f"nvlink{generation}-bridge" if generation == 4 and links == 12 else f"nvlink{generation}"


def nvlink_of_sm(sm: int) -> str:
    generation = _NVLINK_OF_SM.get(sm)
    return f"nvlink{generation}" if generation else "nvlink"


def pcie_of_rate(rate: str) -> str:
    """Of `16 GT/s` or `32.0 GT/s PCIe`."""
    generation = _PCIE_OF_RATE.get(rate.split(" ", 1)[0])
    return f"pcie{generation}" if generation else "pcie"


def adapter_kind(gbps: int, *, infiniband: bool) -> str:
    """Of an adapter's rate, Gb/s."""
    if not infiniband:
        return f"eth-{gbps}"
    return f"ib-{_IB_OF_GBPS[gbps]}" if gbps in _IB_OF_GBPS else "ib"
