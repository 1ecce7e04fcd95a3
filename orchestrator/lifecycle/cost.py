"""What a step cost, as rank 0 measured it: the fields that are kept, and their bounds.

A rank program is the user's; what it says is taken over only where it is what it should be, so that a row's size has a
bound whatever a program says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orchestrator.lifecycle.reports import TRAFFIC_AXES

PHASES = ("data", "forward", "backward", "optimizer", "checkpoint", "evaluation", "other")
"""Parts of a step's time without waiting for other ranks. `other`: what is left of the step's time."""
DIGITS = 5
"""Significant digits that are kept of a measured number."""


def step_cost(said: Any) -> dict[str, Any]:
    """The known fields of what a rank program said its step cost; empty when it said nothing of the kind.

    sent_bytes: bytes that a rank sent, by axis, mean over ranks. phases_s and exposed_s: seconds of rank 0 by phase,
    and waiting for other ranks by axis. peak_bytes: largest memory of any rank so far. model_flops_per_s: of the whole
    job. mfu: share of the devices' peak, absent where that is unknown.
    """
    if not isinstance(said, Mapping):
        return {}
    kept: dict[str, Any] = {}
    for name, known in (("sent_bytes", TRAFFIC_AXES), ("phases_s", PHASES), ("exposed_s", TRAFFIC_AXES)):
        if isinstance(table := said.get(name), Mapping):
            whole = name == "sent_bytes"
            numbers = {key: _number(table.get(key), whole=whole) for key in known}
            kept[name] = {key: number for key, number in numbers.items() if number is not None}
    for name in ("peak_bytes", "model_flops_per_s", "mfu"):
        number = _number(said.get(name), whole=name == "peak_bytes")
        if number is not None:
            kept[name] = number
    return kept


def _number(value: Any, *, whole: bool) -> float | int | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value < 2**63 or not math.isfinite(value):
        return None
    return int(value) if whole else float(f"{value:.{DIGITS}g}")
