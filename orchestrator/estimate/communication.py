"""Seconds of collectives and messages: alpha-beta, over the path that a group's ranks share.

P ranks, n bytes of the whole tensor, alpha seconds a step, beta bytes a second (Thakur et al. 2005; Hockney 1994).
"""

from __future__ import annotations

from math import ceil, log2

from orchestrator.estimate.hardware import Accelerator, Path


def all_reduce_s(path: Path, size: float, ranks: int) -> float:
    """The faster of ring and tree, as libraries choose by size.

    Ring: 2(P-1) alpha + 2(P-1)/P n/beta. Double binary tree: 2 ceil(log2 P) alpha + 2 n/beta (Sanders et al. 2009).
    """
    if ranks == 1 or not size:
        return 0.0
    rate = path.rate(size)
    ring = 2 * (ranks - 1) * path.latency_s + 2 * (ranks - 1) / ranks * size / rate
    tree = 2 * ceil(log2(ranks)) * path.latency_s + 2 * size / rate
    return min(ring, tree)


def gather_s(path: Path, size: float, ranks: int) -> float:
    """All-gather or reduce-scatter by a ring: (P-1) alpha + (P-1)/P n/beta."""
    if ranks == 1 or not size:
        return 0.0
    return (ranks - 1) * path.latency_s + (ranks - 1) / ranks * size / path.rate(size)


def all_to_all_s(path: Path, size: float, ranks: int) -> float:
    """Each rank sends an equal part of its `size` bytes to each: (P-1) alpha + (P-1)/P n/beta."""
    return gather_s(path, size, ranks)


def send_s(path: Path, size: float) -> float:
    """Point to point: alpha + n/beta."""
    return path.latency_s + size / path.rate(size) if size else 0.0


def hidden_cost_s(device: Accelerator, seconds: float) -> float:
    """What communication of `seconds` behind products costs them: the units that its kernels occupy meanwhile."""
    return seconds * device.kernels.comm_sm / device.sm


def exposed_s(device: Accelerator, seconds: float, window_s: float) -> float:
    """Seconds that communication of `seconds` adds to products of `window_s` that run beside it."""
    hidden = min(seconds, window_s)
    return seconds - hidden + hidden_cost_s(device, hidden)
