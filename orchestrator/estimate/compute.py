"""Seconds of kernels: matrix products by shape, streams over memory, attention.

A product is cut into tiles of its result, a tile a unit (SM) at a time, so it takes whole waves of tiles, and tiles at
the edges are computed whole (NVIDIA, Matrix Multiplication Background User's Guide, sections 3 and 4). Filling and
draining a tile costs as much as `fill` elements of the inner dimension. Neither can be faster than the memory allows.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from orchestrator.estimate.hardware import Accelerator

TILES: tuple[tuple[int, int, float], ...] = (
    (256, 128, 1.0),
    (128, 256, 1.0),
    (128, 128, 0.95),
    (256, 64, 0.90),
    (64, 256, 0.90),
    (128, 64, 0.85),
    (64, 128, 0.85),
    (64, 64, 0.70),
)
"""Rows, columns, and speed against the largest: smaller ones read more for each result (section 3 of the guide)."""


@lru_cache(maxsize=65_536)
def product_s(
    device: Accelerator,
    rows: int,
    columns: int,
    inner: int,
    *,
    batch: int = 1,
    precision: str = "bf16",
    size: float = 2.0,
) -> float:
    """Seconds of `batch` products (rows, inner) x (inner, columns); `size`: bytes of an element in memory."""
    flops = 2.0 * batch * rows * columns * inner
    busy = occupancy(rows, columns, batch, device.sm)
    rate = device.sustained_flops(precision) * busy * inner / (inner + device.kernels.fill)
    moved = size * batch * (rows * inner + inner * columns + rows * columns)
    return max(flops / rate, moved / device.stream_bandwidth, device.kernels.launch_s)


@lru_cache(maxsize=65_536)
def occupancy(rows: int, columns: int, batch: int, units: int) -> float:
    """Share of the units' time that goes into results, with the best of TILES."""
    best = 0.0
    for high, wide, speed in TILES:
        tiles = batch * ceil(rows / high) * ceil(columns / wide)
        waves = ceil(tiles / units)
        best = max(best, speed * batch * rows * columns / (waves * units * high * wide))
    return best


def stream_s(device: Accelerator, moved: float, kernels: int = 1) -> float:
    """Seconds of `kernels` kernels that read and write `moved` bytes in all, with arithmetic that hides behind it."""
    return max(moved / device.stream_bandwidth, kernels * device.kernels.launch_s)


def flash_s(
    device: Accelerator,
    *,
    batch: int,
    queries: int,
    keys: int,
    heads: float,
    head_size: int,
    precision: str,
    backward: bool = False,
) -> float:
    """Seconds of fused causal attention, `queries` of a rank over `keys` positions of the sequence, half of them seen.

    Forward 2 products, backward 5 (the scores are computed again): Dao 2023, section 3.2. At a third of the peak it
    draws less than a power limit allows, so none is counted.
    """
    kernels = device.kernels
    flops = (5 if backward else 2) * batch * heads * queries * keys * head_size  # 2 a multiply-add, half seen
    share = kernels.flash_backward if backward else kernels.flash_forward
    length = keys / (keys + kernels.flash_half_length)
    return max(flops / (device.peak[precision] * share * length), kernels.launch_s)


def scores_s(
    device: Accelerator,
    *,
    batch: int,
    queries: int,
    keys: int,
    heads: int,
    head_size: int,
    dropout: bool,
    precision: str,
    backward: bool = False,
) -> float:
    """Seconds of attention that writes its scores, masked ones too: two batched products, softmax and dropout.

    16-bit scores: softmax reads and writes 4 bytes, backward 6; dropout 5 with its mask, backward 5.
    """
    each = batch * heads
    scores = product_s(device, queries, keys, head_size, batch=each, precision=precision)
    values = product_s(device, queries, head_size, keys, batch=each, precision=precision)
    entries = float(each) * queries * keys
    softmax = stream_s(device, entries * (6 if backward else 4))
    drop = stream_s(device, entries * 5) if dropout else 0.0
    return (2 if backward else 1) * (scores + values) + softmax + drop
