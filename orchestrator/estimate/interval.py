"""How often to write a checkpoint: Young 1974 and Daly 2006, from the failure rate and what training waits for."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

LLAMA_3_GPU_HOURS = 16_384 * 54 * 24 / 419
"""GPU-hours between unexpected interruptions: 419 in 54 days on 16,384 H100 (Dubey et al. 2024, section 3.3.4)."""


@dataclass(frozen=True, slots=True)
class Interval:
    seconds: float
    steps: int
    lost: float
    """Share of the time that stalls and repeated work take, to first order, without the repair itself."""


def mean_time_between_failures_s(gpu_hours: float, ranks: int) -> float:
    """Of a job of `ranks`, from GPU-hours between failures of one."""
    if gpu_hours <= 0 or ranks < 1:
        raise ValueError(
            f"GPU-hours between failures {gpu_hours} must be above 0 and ranks {ranks} at least 1"
        )
    return gpu_hours * 3600 / ranks


def young_s(stall_s: float, failures_s: float) -> float:
    """sqrt(2 C M): Young 1974."""
    return sqrt(2 * stall_s * failures_s)


def daly_s(stall_s: float, failures_s: float) -> float:
    """Daly 2006, equation 37: sqrt(2CM) (1 + sqrt(C/2M)/3 + C/18M) - C where C < 2M, else M.

    C: seconds that training waits for a checkpoint, above 0. M: mean seconds between failures.
    """
    if stall_s <= 0 or failures_s <= 0:
        raise ValueError(f"stall {stall_s} s and time between failures {failures_s} s must be above 0")
    if stall_s >= 2 * failures_s:
        return failures_s
    ratio = stall_s / (2 * failures_s)
    return young_s(stall_s, failures_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - stall_s


def advise(*, stall_s: float, failures_s: float, step_s: float) -> Interval:
    """Whole steps, one at least."""
    steps = max(1, round(daly_s(stall_s, failures_s) / step_s))
    seconds = steps * step_s
    return Interval(seconds, steps, stall_s / (seconds + stall_s) + seconds / (2 * failures_s))
