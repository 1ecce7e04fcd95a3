"""Numbers that a rank program said: Python bounds no integer, SQL does. What is beyond is kept as the bound."""

from __future__ import annotations

import math

LARGEST_STEP = 2**31 - 1
"""Of an INTEGER column."""
LARGEST_COUNT = 2**63 - 1
"""Of a BIGINT column: tokens, bytes."""


def whole(value: float, largest: int) -> int:
    """`value` as an integer of at most `largest`, either way from 0. A NaN counts as 0."""
    if value != value:
        return 0
    return int(max(-largest, min(largest, value)))


def real(value: float) -> float:
    """`value` as a float; infinite when it is an integer too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
